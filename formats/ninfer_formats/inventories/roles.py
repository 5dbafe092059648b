"""Roles: what parameters every block of a model has, and where their products read from."""

from __future__ import annotations

from typing import NamedTuple

from ninfer_formats import numeric_formats as nf
from ninfer_formats.inventories.geometry import (
    DFLASH2,
    FULL_ATTENTION,
    DrafterGeometry,
    ModelGeometry,
    TextGeometry,
    VisionGeometry,
)

# Stands for the expert number in the name and site of a role that every routed expert has.
EXPERT = "{}"


class Role(NamedTuple):
    """One parameter of a block.

    `name` and `sites` are relative to the block's prefix; a site that starts with "/" is
    absolute. `direct_format` is the format of the parameter when it is not quantised. `alias_of`
    names the role of the same block whose elements this one shares.
    """

    name: str
    shape: tuple[int, ...]
    direct_format: str = nf.BF16
    sites: tuple[str, ...] = ()
    alias_of: str | None = None

    @property
    def per_expert(self) -> bool:
        return EXPERT in self.name


class Block(NamedTuple):
    """The roles under one prefix. `layer` is the layer number within its component."""

    prefix: str
    residency: str
    layer: int | None
    roles: tuple[Role, ...]
    num_experts: int = 0


def blocks_of(
    geometry: ModelGeometry, components: frozenset[str], proposal_rows: int | None
) -> tuple[Block, ...]:
    """Return the blocks of the chosen components in parameter order."""
    text, drafter = geometry.text, geometry.drafter
    drafters = [name for name in geometry.components[1:] if name in components]
    drafters = [name for name in drafters if name != "vision"]
    heads = tuple(f"/{name}/final_hidden" for name in drafters)
    blocks = [Block("text", "text", None, _stem_roles(text, heads))]
    blocks += _text_layers(text)
    if "mtp" in components:
        blocks.append(Block("mtp", "mtp", None, _mtp_roles(text.hidden_size)))
        blocks.append(_layer_block("mtp/layers/0", "mtp", 0, _attention_layer(text), text))
    if "vision" in components and geometry.vision is not None:
        blocks += _vision_blocks(geometry.vision, text.hidden_size)
    if drafter is not None and drafter.kind in components:
        blocks += _drafter_blocks(drafter, text)
    if proposal_rows is not None:
        roles = _proposal_roles(proposal_rows, text.hidden_size, heads)
        blocks.append(Block("proposal", "proposal", None, roles))
    return tuple(blocks)


def _vector(name: str, size: int) -> Role:
    return Role(name, (size,))


def _matrix(name: str, rows: int, columns: int, *sites: str) -> Role:
    return Role(name, (rows, columns), nf.BF16, sites)


def _stem_roles(text: TextGeometry, drafter_sites: tuple[str, ...]) -> tuple[Role, ...]:
    sites = ("/text/final_hidden", *drafter_sites)
    return (
        _matrix("token_embedding", text.vocab_size, text.hidden_size),
        _matrix("output_head", text.vocab_size, text.hidden_size, *sites),
        _vector("final_norm", text.hidden_size),
    )


def _text_layers(text: TextGeometry) -> list[Block]:
    # Layers of one kind share their roles: a large model has tens of thousands of parameters.
    attention, gdn = _attention_layer(text), _gdn_layer(text)
    return [
        _layer_block(
            f"text/layers/{i}", "text", i, attention if kind == FULL_ATTENTION else gdn, text
        )
        for i, kind in enumerate(text.layer_types)
    ]


def _layer_block(
    prefix: str, residency: str, layer: int, roles: tuple[Role, ...], text: TextGeometry
) -> Block:
    return Block(prefix, residency, layer, roles, text.num_experts or 0)


def _layer_norms(hidden: int) -> tuple[Role, ...]:
    return _vector("input_norm", hidden), _vector("post_attention_norm", hidden)


def _attention_layer(text: TextGeometry) -> tuple[Role, ...]:
    h, q, kv, d = text.hidden_size, text.query_size, text.key_value_size, text.head_dim
    return (
        *_layer_norms(h),
        _matrix("attention/query", q, h, "mixer_input"),
        _matrix("attention/key", kv, h, "mixer_input"),
        _matrix("attention/gate", q, h, "mixer_input"),
        _matrix("attention/value", kv, h, "mixer_input"),
        _vector("attention/query_norm", d),
        _vector("attention/key_norm", d),
        _matrix("attention/output", h, q, "attention/gated_output"),
        *_feed_forward(text),
    )


def _gdn_layer(text: TextGeometry) -> tuple[Role, ...]:
    h, k, v = text.hidden_size, text.linear_key_size, text.linear_value_size
    heads = text.linear_num_value_heads
    return (
        *_layer_norms(h),
        Role("gdn/a_log", (heads,), nf.FP32),
        Role("gdn/dt_bias", (heads,), nf.FP32),
        Role("gdn/convolution", (text.linear_conv_kernel_dim, 2 * k + v)),
        _matrix("gdn/a_projection", heads, h, "mixer_input"),
        _matrix("gdn/b_projection", heads, h, "mixer_input"),
        _matrix("gdn/query", k, h, "mixer_input"),
        _matrix("gdn/key", k, h, "mixer_input"),
        _matrix("gdn/value", v, h, "mixer_input"),
        _matrix("gdn/z", v, h, "mixer_input"),
        _vector("gdn/norm", text.linear_value_head_dim),
        _matrix("gdn/output", h, v, "gdn/gated_output"),
        *_feed_forward(text),
    )


def _feed_forward(text: TextGeometry) -> tuple[Role, ...]:
    h = text.hidden_size
    if text.num_experts is None:
        return _gated_mlp("mlp", h, text.intermediate_size or 0, "mlp")
    experts = f"moe/experts/{EXPERT}"
    return (
        _matrix("moe/router", text.num_experts, h, "ffn_input"),
        _matrix("moe/shared_score", 1, h, "ffn_input"),
        *_gated_mlp(experts, h, text.moe_intermediate_size or 0, experts),
        *_gated_mlp("moe/shared", h, text.shared_expert_intermediate_size or 0, "moe/shared"),
    )


def _gated_mlp(prefix: str, hidden: int, width: int, site: str) -> tuple[Role, ...]:
    return (
        _matrix(f"{prefix}/gate", width, hidden, "ffn_input"),
        _matrix(f"{prefix}/up", width, hidden, "ffn_input"),
        _matrix(f"{prefix}/down", hidden, width, f"{site}/product"),
    )


def _mtp_roles(hidden: int) -> tuple[Role, ...]:
    return (
        _matrix("input_projection", hidden, 2 * hidden, "stem_input"),
        _vector("embedding_norm", hidden),
        _vector("hidden_norm", hidden),
        _vector("final_norm", hidden),
    )


def _vision_blocks(vision: VisionGeometry, text_hidden: int) -> list[Block]:
    h, merged = vision.hidden_size, vision.merged_size
    stem = (
        _matrix("patch_embedding", h, vision.patch_values, "patch_input"),
        _vector("patch_embedding_bias", h),
        _matrix("position_embedding", vision.num_position_embeddings, h),
    )
    merger = (
        _vector("norm_weight", h),
        _vector("norm_bias", h),
        _matrix("fc1", merged, merged, "input"),
        _vector("fc1_bias", merged),
        _matrix("fc2", text_hidden, merged, "activation"),
        _vector("fc2_bias", text_hidden),
    )
    layer = _vision_layer(h, vision.intermediate_size)
    return [
        Block("vision", "vision", None, stem),
        *(Block(f"vision/layers/{b}", "vision", b, layer) for b in range(vision.depth)),
        Block("vision/merger", "vision", None, merger),
    ]


def _vision_layer(h: int, width: int) -> tuple[Role, ...]:
    norms = ("norm1_weight", "norm1_bias", "norm2_weight", "norm2_bias")
    return (
        *(_vector(name, h) for name in norms),
        *(_matrix(f"attention/{n}", h, h, "attention_input") for n in ("query", "key", "value")),
        *(_vector(f"attention/{n}_bias", h) for n in ("query", "key", "value")),
        _matrix("attention/output", h, h, "attention_output"),
        _vector("attention/output_bias", h),
        _matrix("mlp/fc1", width, h, "mlp_input"),
        _vector("mlp/fc1_bias", width),
        _matrix("mlp/fc2", h, width, "mlp_activation"),
        _vector("mlp/fc2_bias", h),
    )


def _drafter_blocks(drafter: DrafterGeometry, text: TextGeometry) -> list[Block]:
    kind, h = drafter.kind, text.hidden_size
    taps = len(drafter.target_layer_ids)
    stem = (
        _matrix("feature_projection", h, taps * h, "target_features"),
        _vector("context_norm", h),
        _vector("final_norm", h),
    )
    layer = _drafter_layer(drafter, h)
    blocks = [Block(kind, kind, None, stem)]
    blocks += [
        Block(f"{kind}/layers/{i}", kind, i, layer) for i in range(drafter.num_hidden_layers)
    ]
    if kind == DFLASH2:
        selector = _selector_roles(drafter.selector_rank or 0, text)
        blocks.append(Block(f"{kind}/candidate_selector", kind, None, selector))
    return blocks


def _drafter_layer(drafter: DrafterGeometry, h: int) -> tuple[Role, ...]:
    d, width = drafter.head_dim, drafter.intermediate_size
    q, kv = drafter.num_attention_heads * d, drafter.num_key_value_heads * d
    context = (f"/{drafter.kind}/context_input",)
    return (
        *_layer_norms(h),
        _matrix("attention/query", q, h, "query_projection_input"),
        _matrix("attention/key", kv, h, "query_projection_input"),
        _matrix("attention/value", kv, h, "query_projection_input"),
        Role("attention/context_key", (kv, h), nf.BF16, context, "attention/key"),
        Role("attention/context_value", (kv, h), nf.BF16, context, "attention/value"),
        _vector("attention/query_norm", d),
        _vector("attention/key_norm", d),
        _matrix("attention/output", h, q, "attention_output"),
        _matrix("mlp/gate", width, h, "mlp_input"),
        _matrix("mlp/up", width, h, "mlp_input"),
        _matrix("mlp/down", h, width, "mlp_product"),
        *_convolution_roles("attention_conv", drafter, h),
        *_convolution_roles("mlp_conv", drafter, h),
    )


def _convolution_roles(name: str, drafter: DrafterGeometry, h: int) -> tuple[Role, ...]:
    if drafter.kind != DFLASH2:
        return ()
    taps, group = drafter.conv_kernel_size or 0, drafter.conv_group_size or 1
    # Two sides of the sublayer (input, output) times the taps.
    return (
        Role(f"{name}/base_kernel", (2, taps, h)),
        _matrix(f"{name}/kernel_projection", 2 * taps * (h // group), h, f"{name}_input"),
    )


def _selector_roles(rank: int, text: TextGeometry) -> tuple[Role, ...]:
    site = f"/{DFLASH2}/final_hidden"
    return (
        _matrix("hidden_projection", rank, text.hidden_size, site),
        _matrix("predecessor_codebook", text.vocab_size, rank),
        _matrix("successor_codebook", text.vocab_size, rank),
    )


def _proposal_roles(rows: int, hidden: int, sites: tuple[str, ...]) -> tuple[Role, ...]:
    return _matrix("head", rows, hidden, *sites), Role("token_ids", (rows,), nf.INT32)
