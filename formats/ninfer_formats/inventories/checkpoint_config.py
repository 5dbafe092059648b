"""Geometry read from the config.json of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.component_configs import (
    DRAFTER_ARCHITECTURES,
    check_text,
    read_drafter,
)
from ninfer_formats.inventories.config_reading import ConfigReader
from ninfer_formats.inventories.geometry import (
    FULL_ATTENTION,
    LINEAR_ATTENTION,
    MAX_LAYERS,
    DrafterGeometry,
    ModelGeometry,
    TextGeometry,
    VisionGeometry,
    layer_types_from_interval,
)

ARCHITECTURES = (
    "Qwen3_5ForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
)

# Keys with one meaning the engines implement: (key, accepted values; None = absent).
_TEXT_FIXED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("hidden_act", (None, "silu")),
    ("attention_bias", (None, False)),
    ("attn_output_gate", (None, True)),
    ("output_gate_type", (None, "silu", "swish")),
    ("mamba_ssm_dtype", (None, "float32")),
    ("mtp_use_dedicated_embeddings", (None, False)),
)
_VISION_FIXED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("hidden_act", (None, "gelu_pytorch_tanh")),
    ("in_channels", (None, 3)),
    ("deepstack_visual_indexes", (None, [])),
)
_ROPE_SECTIONS = ("rope_parameters", "rope_scaling")
_ROPE_KEYS = ("rope_theta", "partial_rotary_factor", "mrope_section")
_ROPE_FIXED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("rope_type", (None, "default")),
    ("type", (None, "default")),
    ("factor", (None,)),
    ("mrope_interleaved", (None, True)),
)


def geometry_from_config(config: Mapping[str, Any]) -> ModelGeometry:
    """Return the geometry of a checkpoint's config.json, nested or flat.

    Raises NinferError naming the key for an unknown architecture, a missing or ill-typed size, or
    a switch that changes the model's arithmetic.
    """
    outer = ConfigReader("config.json", config, NinferError)
    architecture = outer.first_string("architectures")
    if architecture not in ARCHITECTURES:
        raise outer.refuse("architectures", config.get("architectures"), ", ".join(ARCHITECTURES))
    inner = outer.section("text_config") if outer.has("text_config") else outer
    _check_rope_sections((outer, inner))
    text = _read_text(inner, "Moe" in architecture, _read_tied(outer, inner))
    vision = None
    if outer.has("vision_config"):
        vision = _read_vision(outer.section("vision_config"), text.hidden_size)
    return ModelGeometry(text, vision, inner.integer("mtp_num_hidden_layers", 0, 0, 1) == 1)


def drafter_from_config(config: Mapping[str, Any], target: TextGeometry) -> DrafterGeometry:
    """Return the geometry of a drafter checkpoint's config.json for a target model."""
    read = ConfigReader("drafter config.json", config, NinferError)
    _check_rope_sections((read,))
    kinds = {name: kind for kind, name in DRAFTER_ARCHITECTURES.items()}
    kind = kinds.get(read.first_string("architectures") or "")
    if kind is None:
        raise read.refuse("architectures", config.get("architectures"), ", ".join(kinds))
    if read.integer("hidden_size", target.hidden_size) != target.hidden_size:
        want = f"{target.hidden_size}, the target's"
        raise read.refuse("hidden_size", config.get("hidden_size"), want)
    return read_drafter(kind, read, target)


def _check_fixed(read: ConfigReader, fixed: tuple[tuple[str, tuple[Any, ...]], ...]) -> None:
    for key, allowed in fixed:
        found = read.value(key, None, "")
        if not any(found is value or found == value for value in allowed):
            want = ", ".join("absent" if value is None else str(value) for value in allowed)
            raise read.refuse(key, found, want)


def _read_tied(outer: ConfigReader, inner: ConfigReader) -> bool:
    # Both levels may state it, and files exist in which they differ; the outer one is obeyed.
    return outer.boolean("tie_word_embeddings", inner.boolean("tie_word_embeddings", False))


def _check_rope_sections(readers: Iterable[ConfigReader]) -> None:
    """Refuse a scaling of positions wherever it stands: readers disagree on which section counts.

    Artifacts hold base, factor and sections of unscaled positions only.
    """
    for read in readers:
        found = [read.section(key) for key in _ROPE_SECTIONS if read.has(key)]
        for rope in found:
            _check_fixed(rope, _ROPE_FIXED)
        for key in _ROPE_KEYS:
            values = [rope.value(key, None, "") for rope in found if rope.has(key)]
            if values and values[0] != values[-1]:
                raise found[-1].refuse(key, values[-1], f"{values[0]}, as in {_ROPE_SECTIONS[0]}")


def _rope_section(read: ConfigReader) -> ConfigReader:
    """Return where the rope keys are: a section of their own, or the text config (older files)."""
    for key in _ROPE_SECTIONS:
        if read.has(key):
            return read.section(key)
    return read


def _layer_types(read: ConfigReader) -> tuple[str, ...]:
    layers = read.integer("num_hidden_layers", high=MAX_LAYERS)
    if read.has("layer_types"):
        return read.choices("layer_types", (LINEAR_ATTENTION, FULL_ATTENTION), layers)
    return layer_types_from_interval(layers, read.integer("full_attention_interval", 4))


def _read_text(read: ConfigReader, moe: bool, tied: bool) -> TextGeometry:
    _check_fixed(read, _TEXT_FIXED)
    rope = _rope_section(read)
    if rope is read:
        _check_fixed(rope, _ROPE_FIXED)
    outside_factor = read.number("partial_rotary_factor", 0.25, high=1.0)
    feed_forward = (
        {
            "num_experts": read.integer("num_experts"),
            "num_experts_per_tok": read.integer("num_experts_per_tok"),
            "moe_intermediate_size": read.integer("moe_intermediate_size"),
            "shared_expert_intermediate_size": read.integer("shared_expert_intermediate_size"),
        }
        if moe
        else {"intermediate_size": read.integer("intermediate_size")}
    )
    text = TextGeometry(
        hidden_size=read.integer("hidden_size"),
        vocab_size=read.integer("vocab_size"),
        tie_word_embeddings=tied,
        layer_types=_layer_types(read),
        max_position_embeddings=read.integer("max_position_embeddings"),
        rms_norm_eps=read.number("rms_norm_eps", 1e-6, high=1.0),
        num_attention_heads=read.integer("num_attention_heads"),
        num_key_value_heads=read.integer("num_key_value_heads"),
        head_dim=read.integer("head_dim"),
        rope_theta=rope.number("rope_theta", read.number("rope_theta", 1e7)),
        partial_rotary_factor=rope.number("partial_rotary_factor", outside_factor, high=1.0),
        mrope_section=rope.integers("mrope_section", 1, 2**16, count=3),
        linear_num_key_heads=read.integer("linear_num_key_heads"),
        linear_key_head_dim=read.integer("linear_key_head_dim"),
        linear_num_value_heads=read.integer("linear_num_value_heads"),
        linear_value_head_dim=read.integer("linear_value_head_dim"),
        linear_conv_kernel_dim=read.integer("linear_conv_kernel_dim"),
        **feed_forward,
    )
    check_text(text, read)
    _check_mrope(text, rope)
    return text


def _check_mrope(text: TextGeometry, rope: ConfigReader) -> None:
    """Refuse sections that do not fill the rotary half, or leave the interleaved pattern.

    Height (a=1) and width (a=2) take the frequencies j = 3*i + a, i < section[a], all of which
    must lie below half; time takes every other one.
    """
    half = round(text.head_dim * text.partial_rotary_factor) // 2
    sections = text.mrope_section
    inside = all(3 * (sections[axis] - 1) + axis < half for axis in (1, 2))
    if sum(sections) != half or not inside:
        want = f"three interleaved sections that sum to {half}"
        raise rope.refuse("mrope_section", list(sections), want)


def _read_vision(read: ConfigReader, text_hidden_size: int) -> VisionGeometry:
    _check_fixed(read, _VISION_FIXED)
    vision = VisionGeometry(
        depth=read.integer("depth", high=MAX_LAYERS),
        hidden_size=read.integer("hidden_size"),
        intermediate_size=read.integer("intermediate_size"),
        num_heads=read.integer("num_heads"),
        patch_size=read.integer("patch_size"),
        temporal_patch_size=read.integer("temporal_patch_size"),
        spatial_merge_size=read.integer("spatial_merge_size"),
        num_position_embeddings=read.integer("num_position_embeddings"),
    )
    if vision.hidden_size % (4 * vision.num_heads):
        want = "a head width that is a multiple of 4"
        raise read.refuse("num_heads", vision.num_heads, want)
    side = round(vision.num_position_embeddings**0.5)
    if side * side != vision.num_position_embeddings:
        got = vision.num_position_embeddings
        raise read.refuse("num_position_embeddings", got, "a square number")
    if read.integer("out_hidden_size", text_hidden_size) != text_hidden_size:
        got = read.value("out_hidden_size", None, "")
        raise read.refuse("out_hidden_size", got, f"the text hidden_size {text_hidden_size}")
    return vision
