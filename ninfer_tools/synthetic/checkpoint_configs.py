"""The config.json of a synthetic checkpoint and its quantisation section."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ninfer_formats import numeric_formats as nf
from ninfer_formats.inventories.component_configs import component_configs
from ninfer_formats.inventories.geometry import IMAGE_CHANNELS, DrafterGeometry, ModelGeometry
from ninfer_tools.synthetic.checkpoint_sections import CheckpointTensor
from ninfer_tools.synthetic.vocabulary import Vocabulary

_CONTAINERS = {nf.NVFP4: "nvfp4-pack-quantized", nf.FP8: "float-quantized"}


def describe_checkpoint(geometry: ModelGeometry, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return config.json: nested for a model with vision, the flat text-only form without."""
    configs = component_configs(geometry)
    text = _describe_text(geometry, configs["text"], vocabulary)
    common = {"dtype": "bfloat16", "tie_word_embeddings": geometry.text.tie_word_embeddings}
    if geometry.vision is None:
        return {**text, **common}
    family = "Qwen3_5Moe" if geometry.text.is_moe else "Qwen3_5"
    del text["architectures"]
    return {
        "architectures": [f"{family}ForConditionalGeneration"],
        "model_type": "qwen3_5_moe" if geometry.text.is_moe else "qwen3_5",
        **common,
        "image_token_id": vocabulary.added_id("<|image_pad|>"),
        "video_token_id": vocabulary.added_id("<|video_pad|>"),
        "vision_start_token_id": vocabulary.added_id("<|vision_start|>"),
        "vision_end_token_id": vocabulary.added_id("<|vision_end|>"),
        "text_config": text,
        "vision_config": {
            **configs["vision"],
            "in_channels": IMAGE_CHANNELS,
            "hidden_act": "gelu_pytorch_tanh",
            "out_hidden_size": geometry.text.hidden_size,
            "deepstack_visual_indexes": [],
        },
    }


def describe_drafter(geometry: ModelGeometry, drafter: DrafterGeometry) -> dict[str, Any]:
    """Return the config.json of the drafter's own checkpoint."""
    text = geometry.text
    return {
        **component_configs(geometry)[drafter.kind],
        # Artifacts store it rounded to float32.
        "rms_norm_eps": drafter.rms_norm_eps,
        "dtype": "bfloat16",
        "hidden_size": text.hidden_size,
        "vocab_size": text.vocab_size,
        "num_target_layers": text.num_hidden_layers,
        "hidden_act": "silu",
        "is_causal": False,
    }


def describe_quantisation(tensors: Iterable[tuple[CheckpointTensor, str]]) -> dict[str, Any]:
    """Return the compressed-tensors section for (tensor, stored format) pairs; {} if all plain."""
    targets: dict[str, dict[str, None]] = {nf.NVFP4: {}, nf.FP8: {}}
    plain: dict[str, None] = {}
    for tensor, format in tensors:
        if format in targets:
            targets[format][_module_pattern(tensor.module)] = None
        elif tensor.site and not tensor.expert:
            plain[tensor.module] = None
    used = [format for format in targets if targets[format]]
    if not used:
        return {}
    return {
        "quant_method": "compressed-tensors",
        "format": _CONTAINERS[used[0]] if len(used) == 1 else "mixed-precision",
        "quantization_status": "compressed",
        "config_groups": {
            f"group_{i}": {"targets": list(targets[format]), **_describe_scheme(format)}
            for i, format in enumerate(used)
        },
        "ignore": list(plain),
        "kv_cache_scheme": None,
    }


def _describe_text(
    geometry: ModelGeometry, config: dict[str, Any], vocabulary: Vocabulary
) -> dict[str, Any]:
    rope = {**config["rope_parameters"], "rope_type": "default", "mrope_interleaved": True}
    return {
        **config,
        # Artifacts store it rounded to float32.
        "rms_norm_eps": geometry.text.rms_norm_eps,
        "rope_parameters": rope,
        "hidden_act": "silu",
        "attention_bias": False,
        "attn_output_gate": True,
        "mamba_ssm_dtype": "float32",
        "mtp_num_hidden_layers": int(geometry.mtp),
        "mtp_use_dedicated_embeddings": False,
        "eos_token_id": vocabulary.added_id("<|endoftext|>"),
    }


def _module_pattern(module: str) -> str:
    """Return a target that matches the module, and with it the same matrix of all experts."""
    escaped = re.escape(module)
    return "re:^" + re.sub(r"\.experts\\\.\d+\\\.", r".experts\\.\\d+\\.", escaped) + "$"


def _describe_scheme(format: str) -> dict[str, Any]:
    scheme = {"type": "float", "symmetric": True}
    if format == nf.NVFP4:
        scheme |= {"num_bits": 4, "strategy": "tensor_group", "group_size": 16}
        dynamic: dict[str, Any] = {**scheme, "dynamic": "local"}
    else:
        scheme |= {"num_bits": 8, "strategy": "channel"}
        dynamic = {**scheme, "strategy": "token", "dynamic": True}
    return {
        "format": _CONTAINERS[format],
        "weights": {**scheme, "dynamic": False},
        "input_activations": dynamic,
    }
