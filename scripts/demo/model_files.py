# pyright: reportMissingImports=false
"""Configuration, initial weights and files of the demo checkpoint."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from conversation import END_OF_TEXT, END_OF_TURN, IMAGE, VIDEO, VISION_END, VISION_START
from image_patches import MERGE, PATCH
from mtp_module import MtpModule
from torch import Tensor, nn

ARCHITECTURE = "Qwen3_5ForConditionalGeneration"
SHARD_BYTES = 15_000_000
# The released checkpoints keep these two kinds in float32, everything else in bfloat16.
FLOAT32_NAMES = ("linear_attn.A_log", "linear_attn.norm.weight")


def make_config(ids: dict[str, int], vocabulary: int, tiny: bool = False) -> Any:
    """Return the transformers config in the layout of the released dense models."""
    from transformers import Qwen3_5Config

    text = describe_text(ids, vocabulary, tiny)
    return Qwen3_5Config(
        text_config=text,
        vision_config=describe_vision(text["hidden_size"], tiny),
        image_token_id=ids[IMAGE],
        video_token_id=ids[VIDEO],
        vision_start_token_id=ids[VISION_START],
        vision_end_token_id=ids[VISION_END],
        tie_word_embeddings=False,
        architectures=[ARCHITECTURE],
    )


def describe_text(ids: dict[str, int], vocabulary: int, tiny: bool) -> dict[str, Any]:
    layers, interval = (4, 4) if tiny else (8, 4)
    kinds = ["linear_attention"] * (interval - 1) + ["full_attention"]
    rope = {
        "mrope_interleaved": True,
        "mrope_section": [3, 3, 2] if tiny else [11, 11, 10],
        "partial_rotary_factor": 0.25,
        "rope_theta": 10_000_000,
        "rope_type": "default",
    }
    return {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "bos_token_id": None,
        "eos_token_id": ids[END_OF_TEXT],
        "full_attention_interval": interval,
        "head_dim": 64 if tiny else 256,
        "hidden_act": "silu",
        "hidden_size": 64 if tiny else 256,
        "initializer_range": 0.02,
        "intermediate_size": 128 if tiny else 768,
        "layer_types": kinds * (layers // interval),
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 32 if tiny else 128,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 6,
        "linear_value_head_dim": 32 if tiny else 128,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 32768,
        "mlp_only_layers": [],
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "num_attention_heads": 4,
        "num_hidden_layers": layers,
        "num_key_value_heads": 2,
        "pad_token_id": None,
        "partial_rotary_factor": 0.25,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": vocabulary,
        "rope_parameters": rope,
    }


def describe_vision(out: int, tiny: bool) -> dict[str, Any]:
    return {
        "depth": 2 if tiny else 3,
        "hidden_size": 64 if tiny else 128,
        "num_heads": 2 if tiny else 4,
        "intermediate_size": 128 if tiny else 384,
        "hidden_act": "gelu_pytorch_tanh",
        "in_channels": 3,
        "initializer_range": 0.02,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": 2,
        "out_hidden_size": out,
        "num_position_embeddings": 256,
        "deepstack_visual_indexes": [],
    }


def build_model(config: Any, seed: int) -> tuple[Any, MtpModule]:
    """Return model and MTP module in float32 with their initial weights."""
    from transformers import Qwen3_5ForConditionalGeneration

    torch.manual_seed(seed)
    model: Any = Qwen3_5ForConditionalGeneration(config).float()
    mtp = MtpModule(config.text_config).float()
    with torch.no_grad():
        for module in [*model.modules(), *mtp.modules()]:
            _initialise(module)
        for parameter in mtp.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, 0.02)
        model.model.visual.patch_embed.proj.weight.normal_(0, 0.02)
    return model, mtp


def _initialise(module: Any) -> None:
    kind = type(module).__name__
    if kind == "Qwen3_5GatedDeltaNet":
        # As Mamba starts: slow decays, log-uniform between 0.001 and 0.1.
        low, high = math.log(0.001), math.log(0.1)
        step = torch.exp(torch.rand(module.num_v_heads) * (high - low) + low)
        module.dt_bias.copy_(step + torch.log(-torch.expm1(-step)))
        module.A_log.copy_(torch.log(torch.empty(module.num_v_heads).uniform_(1, 16)))
        module.conv1d.weight.normal_(0, 0.3)
    outputs = {
        "Qwen3_5GatedDeltaNet": "out_proj",
        "Qwen3_5Attention": "o_proj",
        "Qwen3_5MLP": "down_proj",
    }
    if kind in outputs:
        getattr(module, outputs[kind]).weight.mul_(0.1)


def save_weights(model: nn.Module, mtp: MtpModule, out: Path) -> list[Path]:
    """Write the shards and their index; first fit keeps the number of files low."""
    from safetensors.torch import save_file

    state = dict(model.state_dict())
    state |= {f"mtp.{name}": value for name, value in mtp.state_dict().items()}
    stored = {name: _stored(name, value) for name, value in state.items()}
    shards: list[dict[str, Tensor]] = []
    for name in sorted(stored, key=lambda name: -stored[name].nbytes):
        fitting = (s for s in shards if _bytes(s) + stored[name].nbytes <= SHARD_BYTES)
        shard = next(fitting, None)
        if shard is None:
            shards.append(shard := {})
        shard[name] = stored[name]
    weight_map, paths = {}, []
    for number, shard in enumerate(shards, 1):
        path = out / f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, path, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shard, path.name)
        paths.append(path)
    index = {
        "metadata": {"total_size": _bytes(stored)},
        "weight_map": dict(sorted(weight_map.items())),
    }
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    return paths


def _stored(name: str, value: Tensor) -> Tensor:
    dtype = torch.float32 if name.endswith(FLOAT32_NAMES) else torch.bfloat16
    value = value.detach().to("cpu", dtype).contiguous()
    if not torch.isfinite(value.float()).all():
        raise SystemExit(f"not finite: {name}")
    return value


def _bytes(tensors: dict[str, Tensor]) -> int:
    return sum(value.nbytes for value in tensors.values())


def save_configs(config: Any, ids: dict[str, int], out: Path) -> None:
    record = config.to_dict()
    record["dtype"] = record["text_config"]["dtype"] = "bfloat16"
    record.pop("_name_or_path", None)
    record["architectures"] = [ARCHITECTURE]
    (out / "config.json").write_text(json.dumps(record, indent=2))
    generation = {
        "bos_token_id": ids[END_OF_TEXT],
        "do_sample": True,
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.95,
        "eos_token_id": [ids[END_OF_TURN], ids[END_OF_TEXT]],
        "pad_token_id": ids[END_OF_TEXT],
    }
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2))
