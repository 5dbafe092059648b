"""Tiny checkpoints in the official layout, and the values every parameter must come out with.

Names and row orders are spelled out here and not taken from the code under test.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from builders.stored_forms import STORES, Stored, encode_safetensors, store_plain
from ninfer_formats.inventories.geometry import (
    DrafterGeometry,
    ModelGeometry,
    TextGeometry,
    VisionGeometry,
)
from ninfer_formats.inventories.parameters import Parameter, list_parameters
from ninfer_tools.synthetic.frontend import build_frontend

VOCAB_ROWS, TOKENS = 320, 289
INDEX = "model.safetensors.index.json"


def tiny_geometry(*, moe=False, tied=False, vision=True, mtp=True, drafter=False):
    """Return a model of two layers, GDN then attention, GDN ratio 3."""
    experts = (4, 2, 32, 48) if moe else (None,) * 4
    text = TextGeometry(
        hidden_size=128,
        vocab_size=VOCAB_ROWS,
        tie_word_embeddings=tied,
        layer_types=("linear_attention", "full_attention"),
        num_attention_heads=2,
        num_key_value_heads=1,
        linear_num_key_heads=2,
        linear_num_value_heads=6,
        intermediate_size=None if moe else 192,
        num_experts=experts[0],
        num_experts_per_tok=experts[1],
        moe_intermediate_size=experts[2],
        shared_expert_intermediate_size=experts[3],
        head_dim=64,
        linear_key_head_dim=32,
        linear_value_head_dim=32,
        max_position_embeddings=4096,
        mrope_section=(3, 3, 2),
    )
    tower = VisionGeometry(2, 32, 48, 2, num_position_embeddings=16) if vision else None
    companion = None
    if drafter:
        companion = DrafterGeometry(
            "dflash2", 96, ("sliding_attention",) * 2, 64, (0, 1), 300, 2, 1, 32,
            max_position_embeddings=4096, conv_kernel_size=2, conv_group_size=16,
            selector_rank=16, selector_top_k=4,
        )  # fmt: skip
    return ModelGeometry(text, tower, mtp, companion)


def describe_config(geometry: ModelGeometry, *, flat=False) -> dict[str, Any]:
    """Return config.json, text sizes nested in `text_config` or all at the top."""
    t = geometry.text
    text = {
        "model_type": "qwen3_5_moe_text" if t.is_moe else "qwen3_5_text",
        "hidden_size": t.hidden_size,
        "vocab_size": t.vocab_size,
        "num_hidden_layers": len(t.layer_types),
        "layer_types": list(t.layer_types),
        "num_attention_heads": t.num_attention_heads,
        "num_key_value_heads": t.num_key_value_heads,
        "head_dim": t.head_dim,
        "linear_num_key_heads": t.linear_num_key_heads,
        "linear_num_value_heads": t.linear_num_value_heads,
        "linear_key_head_dim": t.linear_key_head_dim,
        "linear_value_head_dim": t.linear_value_head_dim,
        "linear_conv_kernel_dim": t.linear_conv_kernel_dim,
        "max_position_embeddings": t.max_position_embeddings,
        "rms_norm_eps": t.rms_norm_eps,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000000,
            "partial_rotary_factor": 0.25,
            "mrope_section": list(t.mrope_section),
            "mrope_interleaved": True,
        },
        "hidden_act": "silu",
        "attn_output_gate": True,
        "output_gate_type": "swish",
        "mtp_num_hidden_layers": int(geometry.mtp),
    }
    if t.is_moe:
        text["num_experts"], text["num_experts_per_tok"] = t.num_experts, t.num_experts_per_tok
        text["moe_intermediate_size"] = t.moe_intermediate_size
        text["shared_expert_intermediate_size"] = t.shared_expert_intermediate_size
    else:
        text["intermediate_size"] = t.intermediate_size
    family = "Qwen3_5Moe" if t.is_moe else "Qwen3_5"
    outer: dict[str, Any] = {"tie_word_embeddings": t.tie_word_embeddings}
    if flat:
        return {"architectures": [f"{family}ForCausalLM"], **text, **outer}
    outer |= {
        "architectures": [f"{family}ForConditionalGeneration"],
        "model_type": "qwen3_5_moe" if t.is_moe else "qwen3_5",
        "text_config": text,
    }
    if geometry.vision is not None:
        outer["vision_config"] = _vision_config(geometry.vision, t.hidden_size)
    return outer


def _vision_config(v: VisionGeometry, hidden: int) -> dict[str, Any]:
    return {
        "model_type": "qwen3_5", "depth": v.depth, "hidden_size": v.hidden_size,
        "intermediate_size": v.intermediate_size, "num_heads": v.num_heads, "patch_size": 16,
        "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": hidden,
        "num_position_embeddings": v.num_position_embeddings, "in_channels": 3,
        "hidden_act": "gelu_pytorch_tanh", "deepstack_visual_indexes": [],
    }  # fmt: skip


def describe_drafter(geometry: ModelGeometry) -> dict[str, Any]:
    d = geometry.drafter
    assert d is not None
    return {
        "architectures": ["DFlash2DraftModel"], "model_type": "qwen3", "num_hidden_layers": 2,
        "hidden_size": geometry.text.hidden_size, "intermediate_size": d.intermediate_size,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
        "rms_norm_eps": 1e-6, "rope_theta": 10000000, "max_position_embeddings": 4096,
        "layer_types": ["sliding_attention"] * 2, "sliding_window": 64, "is_causal": False,
        "dflash_config": {
            "block_size": 8, "target_layer_ids": [0, 1], "mask_token_id": 300,
            "conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 16,
            "selector_top_k": 4,
        },
    }  # fmt: skip


Part = Callable[[str], np.ndarray]


def compose(geometry: ModelGeometry, part: Part, split_experts=False) -> dict[str, np.ndarray]:
    """Return checkpoint tensors by their official names, made of parameters.

    `part` gives the array of a parameter by its logical name.
    """
    t, out = geometry.text, {}
    text = "model.language_model."
    out[f"{text}embed_tokens.weight"] = part("text/token_embedding")
    for i, kind in enumerate(t.layer_types):
        _compose_layer(out, f"{text}layers.{i}.", part, f"text/layers/{i}/", kind, t, split_experts)
    out[f"{text}norm.weight"] = part("text/final_norm")
    if not t.tie_word_embeddings:
        out["lm_head.weight"] = part("text/output_head")
    if geometry.vision is not None:
        _compose_vision(out, part, geometry.vision)
    if geometry.mtp:
        out["mtp.fc.weight"] = part("mtp/input_projection")
        out["mtp.pre_fc_norm_embedding.weight"] = part("mtp/embedding_norm")
        out["mtp.pre_fc_norm_hidden.weight"] = part("mtp/hidden_norm")
        out["mtp.norm.weight"] = part("mtp/final_norm")
        layer = "mtp.layers.0."
        _compose_layer(out, layer, part, "mtp/layers/0/", "full_attention", t, split_experts)
    return out


def _compose_layer(out, to, part, of, kind, t, split_experts):
    out[f"{to}input_layernorm.weight"] = part(f"{of}input_norm")
    out[f"{to}post_attention_layernorm.weight"] = part(f"{of}post_attention_norm")
    if kind == "full_attention":
        heads = (t.num_attention_heads, t.head_dim, t.hidden_size)
        pair = [part(f"{of}attention/{name}").reshape(heads) for name in ("query", "gate")]
        out[f"{to}self_attn.q_proj.weight"] = np.concatenate(pair, 1).reshape(-1, t.hidden_size)
        for theirs, ours in (("k_proj", "key"), ("v_proj", "value"), ("o_proj", "output")):
            out[f"{to}self_attn.{theirs}.weight"] = part(f"{of}attention/{ours}")
        out[f"{to}self_attn.q_norm.weight"] = part(f"{of}attention/query_norm")
        out[f"{to}self_attn.k_norm.weight"] = part(f"{of}attention/key_norm")
    else:
        g, to_gdn = f"{of}gdn/", f"{to}linear_attn."
        qkv = [part(g + name) for name in ("query", "key", "value")]
        out[f"{to_gdn}in_proj_qkv.weight"] = np.concatenate(qkv)
        out[f"{to_gdn}conv1d.weight"] = np.ascontiguousarray(part(f"{g}convolution").T)[:, None]
        for theirs, ours in (
            ("in_proj_z.weight", "z"), ("in_proj_a.weight", "a_projection"),
            ("in_proj_b.weight", "b_projection"), ("A_log", "a_log"), ("dt_bias", "dt_bias"),
            ("norm.weight", "norm"), ("out_proj.weight", "output"),
        ):  # fmt: skip
            out[to_gdn + theirs] = part(g + ours)
    if t.is_moe:
        _compose_experts(out, f"{to}mlp.", part, f"{of}moe/", t.num_experts, split_experts)
        out[f"{to}mlp.gate.weight"] = part(f"{of}moe/router")
        out[f"{to}mlp.shared_expert_gate.weight"] = part(f"{of}moe/shared_score")
    mlp, ours = ("mlp.shared_expert.", "moe/shared/") if t.is_moe else ("mlp.", "mlp/")
    for name in ("gate", "up", "down"):
        out[f"{to}{mlp}{name}_proj.weight"] = part(f"{of}{ours}{name}")


def _compose_experts(out, to, part, of, count, split):
    if split:
        for e in range(count):
            for name in ("gate", "up", "down"):
                out[f"{to}experts.{e}.{name}_proj.weight"] = part(f"{of}experts/{e}/{name}")
        return
    pairs = [[part(f"{of}experts/{e}/{name}") for name in ("gate", "up")] for e in range(count)]
    out[f"{to}experts.gate_up_proj"] = np.stack([np.concatenate(pair) for pair in pairs])
    out[f"{to}experts.down_proj"] = np.stack([part(f"{of}experts/{e}/down") for e in range(count)])


def _compose_vision(out, part, vision):
    v = "model.visual."
    patches = part("vision/patch_embedding")
    out[f"{v}patch_embed.proj.weight"] = patches.reshape(len(patches), 3, 2, 16, 16)
    out[f"{v}patch_embed.proj.bias"] = part("vision/patch_embedding_bias")
    out[f"{v}pos_embed.weight"] = part("vision/position_embedding")
    for b in range(vision.depth):
        to, of = f"{v}blocks.{b}.", f"vision/layers/{b}/"
        for kind, tail in (("weight", ""), ("bias", "_bias")):
            qkv = [part(f"{of}attention/{name}{tail}") for name in ("query", "key", "value")]
            out[f"{to}attn.qkv.{kind}"] = np.concatenate(qkv)
            out[f"{to}attn.proj.{kind}"] = part(f"{of}attention/output{tail}")
            for i in (1, 2):
                out[f"{to}norm{i}.{kind}"] = part(f"{of}norm{i}_{kind}")
                out[f"{to}mlp.linear_fc{i}.{kind}"] = part(f"{of}mlp/fc{i}{tail}")
    for kind, tail in (("weight", ""), ("bias", "_bias")):
        out[f"{v}merger.norm.{kind}"] = part(f"vision/merger/norm_{kind}")
        for i in (1, 2):
            out[f"{v}merger.linear_fc{i}.{kind}"] = part(f"vision/merger/fc{i}{tail}")


def compose_drafter(geometry: ModelGeometry, part: Part) -> dict[str, np.ndarray]:
    """Return the tensors of the DFlash2 checkpoint."""
    d, out = "dflash2/", {}
    out["fc.weight"] = part(f"{d}feature_projection")
    out["hidden_norm.weight"] = part(f"{d}context_norm")
    out["norm.weight"] = part(f"{d}final_norm")
    for i in range(2):
        to, of = f"layers.{i}.", f"{d}layers/{i}/"
        out[f"{to}input_layernorm.weight"] = part(f"{of}input_norm")
        out[f"{to}post_attention_layernorm.weight"] = part(f"{of}post_attention_norm")
        for theirs, ours in (
            ("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"), ("o_proj", "output"),
            ("q_norm", "query_norm"), ("k_norm", "key_norm"),
        ):  # fmt: skip
            out[f"{to}self_attn.{theirs}.weight"] = part(f"{of}attention/{ours}")
        for name in ("gate", "up", "down"):
            out[f"{to}mlp.{name}_proj.weight"] = part(f"{of}mlp/{name}")
        for name in ("attention_conv", "mlp_conv"):
            out[f"{to}{name}.base_kernel"] = part(f"{of}{name}/base_kernel")
            projection = f"{to}{name}.kernel_projection.weight"
            out[projection] = part(f"{of}{name}/kernel_projection")
    c = "candidate_selector"
    out[f"{c}.hidden_projection.weight"] = part(f"{d}{c}/hidden_projection")
    out[f"{c}.predecessor_codebook"] = part(f"{d}{c}/predecessor_codebook")
    out[f"{c}.successor_codebook"] = part(f"{d}{c}/successor_codebook")
    return out


@dataclass
class TinyCheckpoint:
    """Everything of a checkpoint folder, open to changes before it is written.

    `values` are the float32 values every parameter must come out with, by logical name.
    """

    geometry: ModelGeometry
    config: dict[str, Any]
    tensors: dict[str, Stored]
    values: dict[str, np.ndarray]
    resources: dict[str, bytes] = field(default_factory=dict)

    def rename(self, old: str, new: str) -> None:
        """Replace a prefix of tensor names."""
        self.tensors = {
            new + name.removeprefix(old) if name.startswith(old) else name: tensor
            for name, tensor in self.tensors.items()
        }

    def drop(self, *prefixes: str) -> None:
        self.tensors = {n: t for n, t in self.tensors.items() if not n.startswith(prefixes)}

    def write(self, folder: Path, shards: int = 1) -> Path:
        """Write the folder; more than one shard makes an index."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        for role, raw in self.resources.items():
            (folder / role).write_bytes(raw)
        write_shards(folder, self.tensors, shards)
        return folder


def build_checkpoint(
    geometry: ModelGeometry | None = None,
    *,
    form: str | Callable[[str], str | None] | None = None,
    quantise: Callable[[str], bool] | None = None,
    split_experts: bool = False,
    seed: int = 0,
    dtype: str = "BF16",
    **sizes: bool,
) -> TinyCheckpoint:
    """Return a checkpoint of `tiny_geometry(**sizes)`.

    `form` (a key of STORES) stores the projections of text layers so, or those tensors that
    `quantise` chooses by official name; a function tells the form of every tensor, None for
    `dtype`. Quantised experts lie one by one.
    """
    geometry = geometry or tiny_geometry(**sizes)
    own = [name for name in geometry.components if not name.startswith("dflash")]
    split_experts = split_experts or form is not None
    parameters = list_parameters(geometry, own)
    chosen = quantise or _is_projection
    form_of = form if callable(form) else (lambda name: form if chosen(name) else None)
    tensors, values = _draw(
        parameters, lambda part: compose(geometry, part, split_experts), seed, form_of, dtype
    )
    config = describe_config(geometry)
    return TinyCheckpoint(geometry, config, tensors, values, build_frontend(TOKENS))


def build_drafter(geometry: ModelGeometry | None = None, seed: int = 1) -> TinyCheckpoint:
    """Return the DFlash2 companion of `tiny_geometry(drafter=True)`."""
    geometry = geometry or tiny_geometry(drafter=True)
    named = list_parameters(geometry, ("text", "dflash2"))
    parameters = [p for p in named if p.residency == "dflash2"]
    tensors, values = _draw(
        parameters, lambda part: compose_drafter(geometry, part), seed, lambda name: None
    )
    for parameter in parameters:
        if parameter.alias_of:
            values[parameter.name] = values[parameter.alias_of]
    return TinyCheckpoint(geometry, describe_drafter(geometry), tensors, values)


def _is_projection(name: str) -> bool:
    inside = name.startswith("model.language_model.layers.")
    return inside and name.endswith(
        ("_proj.weight", "in_proj_qkv.weight", "in_proj_z.weight")
    )  # fmt: skip


def _draw(parameters, composer, seed, form_of, dtype="BF16"):
    """Return stored tensors and the values of the parameters they hold.

    Composing unique tags instead of values tells which element of which tensor each parameter
    gets, so that words can be drawn tensor by tensor.
    """
    owners: list[Parameter] = [p for p in parameters if p.alias_of is None]
    tags, begin = {}, 0
    for p in owners:
        size = int(np.prod(p.shape))
        tags[p.name] = np.arange(begin, begin + size).reshape(p.shape)
        begin += size
    flat = np.full(begin, np.nan, np.float32)
    random = np.random.default_rng(seed)
    tensors: dict[str, Stored] = {}
    for name, tag in composer(tags.__getitem__).items():
        form = form_of(name)
        if form is not None:
            parts, decoded = STORES[form](random, *tag.shape)
            tensors |= {name.removesuffix("weight") + part: t for part, t in parts.items()}
        else:
            stored, decoded = store_plain(random, name, tag.shape, dtype)
            tensors[name] = stored
        flat[tag.reshape(-1)] = decoded.reshape(-1)
    values = {name: flat[tag] for name, tag in tags.items()}
    # A tied head is no tensor.
    if np.isnan(values.get("text/output_head", np.zeros(1))).any():
        values["text/output_head"] = values["text/token_embedding"]
    return tensors, values


def write_shards(folder: Path, tensors: dict[str, Stored], shards: int) -> None:
    if shards == 1:
        (folder / "model.safetensors").write_bytes(encode_safetensors(tensors))
        return
    names = list(tensors)
    weight_map = {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        # Every shard gets every nth tensor, so that companions lie in different files.
        chosen = {name: tensors[name] for name in names[i::shards]}
        (folder / file).write_bytes(encode_safetensors(chosen))
        weight_map |= dict.fromkeys(chosen, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index))
