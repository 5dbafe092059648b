"""Component configs of a version 3 directory, and the geometry read back from them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from ninfer_formats.errors import ArtifactError
from ninfer_formats.inventories.config_reading import ConfigReader
from ninfer_formats.inventories.geometry import (
    DFLASH,
    DFLASH2,
    FULL_ATTENTION,
    LINEAR_ATTENTION,
    MAX_LAYERS,
    SLIDING_ATTENTION,
    DrafterGeometry,
    ModelGeometry,
    TextGeometry,
    VisionGeometry,
)

DRAFTER_ARCHITECTURES = {DFLASH: "DFlashDraftModel", DFLASH2: "DFlash2DraftModel"}
# Routed experts of one model, over all its layers: bounds every enumeration of parameters.
MAX_EXPERTS = 2**18

_EXPERT_KEYS = (
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
)
_LINEAR_KEYS = (
    "linear_num_key_heads",
    "linear_key_head_dim",
    "linear_num_value_heads",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)
_VISION_KEYS = (
    "depth",
    "hidden_size",
    "intermediate_size",
    "num_heads",
    "patch_size",
    "temporal_patch_size",
    "spatial_merge_size",
    "num_position_embeddings",
)
_SELECTOR_KEYS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")


def component_configs(geometry: ModelGeometry) -> dict[str, dict[str, Any]]:
    """Return the `config` of every component, keys in the order of specs/inventories.md."""
    text = geometry.text
    configs: dict[str, dict[str, Any]] = {"text": _text_config(text)}
    if geometry.mtp:
        name = "Qwen3_5MoeMTP" if text.is_moe else "Qwen3_5MTP"
        configs["mtp"] = {"architectures": [name]}
    if geometry.vision is not None:
        kind = "qwen3_5_moe_vision" if text.is_moe else "qwen3_5_vision"
        configs["vision"] = {"model_type": kind} | _fields(geometry.vision, _VISION_KEYS)
    if geometry.drafter is not None:
        configs[geometry.drafter.kind] = _drafter_config(geometry.drafter)
    return configs


def _fields(record: object, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: getattr(record, key) for key in keys}


def _single(value: float) -> float:
    """Return `value` rounded to float32, as the engines hold it."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def _text_config(text: TextGeometry) -> dict[str, Any]:
    family = "Qwen3_5Moe" if text.is_moe else "Qwen3_5"
    return {
        "architectures": [f"{family}ForCausalLM"],
        "model_type": "qwen3_5_moe_text" if text.is_moe else "qwen3_5_text",
        "hidden_size": text.hidden_size,
        "vocab_size": text.vocab_size,
        "tie_word_embeddings": text.tie_word_embeddings,
        "num_hidden_layers": text.num_hidden_layers,
        "layer_types": list(text.layer_types),
        "max_position_embeddings": text.max_position_embeddings,
        "rms_norm_eps": _single(text.rms_norm_eps),
        "num_attention_heads": text.num_attention_heads,
        "num_key_value_heads": text.num_key_value_heads,
        "head_dim": text.head_dim,
        "rope_parameters": {
            "rope_theta": float(text.rope_theta),
            "partial_rotary_factor": text.partial_rotary_factor,
            "mrope_section": list(text.mrope_section),
        },
        **_fields(text, _LINEAR_KEYS),
        **_fields(text, _EXPERT_KEYS if text.is_moe else ("intermediate_size",)),
    }


def _drafter_config(drafter: DrafterGeometry) -> dict[str, Any]:
    dflash: dict[str, Any] = {
        "target_layer_ids": list(drafter.target_layer_ids),
        "mask_token_id": drafter.mask_token_id,
    }
    if drafter.kind == DFLASH2:
        dflash |= _fields(drafter, _SELECTOR_KEYS)
    return {
        "architectures": [DRAFTER_ARCHITECTURES[drafter.kind]],
        "model_type": "qwen3",
        "intermediate_size": drafter.intermediate_size,
        "num_attention_heads": drafter.num_attention_heads,
        "num_key_value_heads": drafter.num_key_value_heads,
        "head_dim": drafter.head_dim,
        "num_hidden_layers": drafter.num_hidden_layers,
        "rms_norm_eps": _single(drafter.rms_norm_eps),
        "rope_parameters": {"rope_theta": float(drafter.rope_theta)},
        "max_position_embeddings": drafter.max_position_embeddings,
        "layer_types": list(drafter.layer_types),
        "sliding_window": drafter.sliding_window,
        "dflash_config": dflash,
    }


def geometry_from_components(configs: Mapping[str, Mapping[str, Any]]) -> ModelGeometry:
    """Return the geometry that component configs describe; unknown components are ignored.

    Raises ArtifactError naming component and key for a missing, ill-typed or impossible value.
    """
    text = _read_text(_reader(configs, "text"))
    vision = _read_vision(_reader(configs, "vision")) if "vision" in configs else None
    drafters = [name for name in DRAFTER_ARCHITECTURES if name in configs]
    if len(drafters) > 1:
        raise ArtifactError("an artifact holds one drafter", where="components", got=drafters)
    drafter = None
    if drafters:
        drafter = read_drafter(drafters[0], _reader(configs, drafters[0]), text)
    return ModelGeometry(text, vision, "mtp" in configs, drafter)


def _reader(configs: Mapping[str, Mapping[str, Any]], name: str) -> ConfigReader:
    return ConfigReader(name, configs.get(name), ArtifactError)


def _read_text(read: ConfigReader) -> TextGeometry:
    layers = read.integer("num_hidden_layers", high=MAX_LAYERS)
    rope = read.section("rope_parameters")
    moe = read.has("num_experts")
    text = TextGeometry(
        hidden_size=read.integer("hidden_size"),
        vocab_size=read.integer("vocab_size"),
        tie_word_embeddings=read.boolean("tie_word_embeddings"),
        layer_types=read.choices("layer_types", (LINEAR_ATTENTION, FULL_ATTENTION), layers),
        max_position_embeddings=read.integer("max_position_embeddings"),
        rms_norm_eps=read.number("rms_norm_eps", high=1.0),
        num_attention_heads=read.integer("num_attention_heads"),
        num_key_value_heads=read.integer("num_key_value_heads"),
        head_dim=read.integer("head_dim"),
        rope_theta=rope.number("rope_theta"),
        partial_rotary_factor=rope.number("partial_rotary_factor", high=1.0),
        mrope_section=rope.integers("mrope_section", 0, 2**16, count=3),
        intermediate_size=None if moe else read.integer("intermediate_size"),
        **{key: read.integer(key) for key in _LINEAR_KEYS},
        **{key: read.integer(key) for key in _EXPERT_KEYS if moe},
    )
    check_text(text, read)
    return text


def check_text(text: TextGeometry, read: ConfigReader) -> None:
    """Refuse sizes that contradict each other, through the reader they came from."""
    if text.num_attention_heads % text.num_key_value_heads:
        want = f"a divisor of num_attention_heads {text.num_attention_heads}"
        raise read.refuse("num_key_value_heads", text.num_key_value_heads, want)
    if text.linear_num_value_heads % text.linear_num_key_heads:
        want = f"a divisor of linear_num_value_heads {text.linear_num_value_heads}"
        raise read.refuse("linear_num_key_heads", text.linear_num_key_heads, want)
    most = MAX_EXPERTS // (text.num_hidden_layers + 1)
    if text.num_experts is not None and text.num_experts > most:
        raise read.refuse("num_experts", text.num_experts, f"at most {most}")
    if (text.num_experts_per_tok or 0) > (text.num_experts or 0):
        want = f"at most num_experts {text.num_experts}"
        raise read.refuse("num_experts_per_tok", text.num_experts_per_tok, want)


def _read_vision(read: ConfigReader) -> VisionGeometry:
    sizes = {key: read.integer(key) for key in _VISION_KEYS if key != "depth"}
    vision = VisionGeometry(depth=read.integer("depth", high=MAX_LAYERS), **sizes)
    if vision.hidden_size % vision.num_heads:
        raise read.refuse("num_heads", vision.num_heads, f"a divisor of {vision.hidden_size}")
    return vision


def read_drafter(kind: str, read: ConfigReader, text: TextGeometry) -> DrafterGeometry:
    """Return the drafter that a config (of a component or a checkpoint) describes."""
    layers = read.integer("num_hidden_layers", high=MAX_LAYERS)
    dflash = read.section("dflash_config")
    theta = read.section("rope_parameters") if read.has("rope_parameters") else read
    windowed = read.has("sliding_window")
    return DrafterGeometry(
        kind=kind,
        intermediate_size=read.integer("intermediate_size"),
        layer_types=read.choices("layer_types", (SLIDING_ATTENTION, FULL_ATTENTION), layers),
        sliding_window=read.integer("sliding_window") if windowed else None,
        target_layer_ids=dflash.integers("target_layer_ids", 0, text.num_hidden_layers - 1),
        mask_token_id=dflash.integer("mask_token_id", low=0, high=text.vocab_size - 1),
        num_attention_heads=read.integer("num_attention_heads"),
        num_key_value_heads=read.integer("num_key_value_heads"),
        head_dim=read.integer("head_dim"),
        rms_norm_eps=read.number("rms_norm_eps", high=1.0),
        rope_theta=theta.number("rope_theta"),
        max_position_embeddings=read.integer("max_position_embeddings"),
        **{key: dflash.integer(key) for key in _SELECTOR_KEYS if kind == DFLASH2},
    )
