"""The Qwen3.5 / 3.6 / 3.8 family as data."""

from __future__ import annotations

from typing import NamedTuple

from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.geometry import (
    DFLASH,
    DFLASH2,
    FULL_ATTENTION,
    SLIDING_ATTENTION,
    DrafterGeometry,
    ModelGeometry,
    TextGeometry,
    VisionGeometry,
    layer_types_from_interval,
)

VOCAB_ROWS = 248320
PROPOSAL_ROWS = 131072

_VISION_12 = VisionGeometry(12, 768, 3072, 12)
_VISION_24 = VisionGeometry(24, 1024, 4096, 16)
_VISION_27 = VisionGeometry(27, 1152, 4304, 16)


class _Experts(NamedTuple):
    number: int
    active: int
    width: int
    shared_width: int


class _Row(NamedTuple):
    """One row of the family table; heads are (query, key/value), gdn is (key, value) heads."""

    hidden: int
    layers: int
    heads: tuple[int, int]
    gdn: tuple[int, int]
    feed_forward: int | _Experts
    tied: bool
    vision: VisionGeometry


_SIZES = {
    "0.8b": _Row(1024, 24, (8, 2), (16, 16), 3584, True, _VISION_12),
    "2b": _Row(2048, 24, (8, 2), (16, 16), 6144, True, _VISION_24),
    "4b": _Row(2560, 32, (16, 4), (16, 32), 9216, True, _VISION_24),
    "9b": _Row(4096, 32, (16, 4), (16, 32), 12288, False, _VISION_27),
    "27b": _Row(5120, 64, (24, 4), (16, 48), 17408, False, _VISION_27),
    "35b-a3b": _Row(2048, 40, (16, 2), (16, 32), _Experts(256, 8, 512, 512), False, _VISION_27),
    "122b-a10b": _Row(3072, 48, (32, 2), (16, 64), _Experts(256, 8, 1024, 1024), False, _VISION_27),
    "397b-a17b": _Row(
        4096, 60, (32, 2), (16, 64), _Experts(512, 10, 1024, 1024), False, _VISION_27
    ),
}

_DFLASH_35B = DrafterGeometry(
    kind=DFLASH,
    intermediate_size=6144,
    layer_types=(SLIDING_ATTENTION,) * 5 + (FULL_ATTENTION,),
    sliding_window=4096,
    target_layer_ids=(1, 6, 11, 16, 22, 27, 32, 37),
    mask_token_id=248077,
)
_DFLASH_27B = DrafterGeometry(
    kind=DFLASH,
    intermediate_size=17408,
    layer_types=(SLIDING_ATTENTION,) * 4 + (FULL_ATTENTION,),
    sliding_window=2048,
    target_layer_ids=(1, 16, 31, 46, 61),
    mask_token_id=248070,
)
_DFLASH2_27B = DrafterGeometry(
    kind=DFLASH2,
    intermediate_size=17408,
    layer_types=(SLIDING_ATTENTION,) * 5,
    sliding_window=2048,
    target_layer_ids=(5, 19, 33, 47, 61),
    mask_token_id=248070,
    conv_kernel_size=2,
    conv_group_size=16,
    selector_rank=256,
    selector_top_k=16,
)

# Model name -> (row of the size table, drafter published for it).
_MODELS: dict[str, tuple[str, DrafterGeometry | None]] = {
    "qwen3.5-0.8b": ("0.8b", None),
    "qwen3.5-2b": ("2b", None),
    "qwen3.5-4b": ("4b", None),
    "qwen3.5-9b": ("9b", None),
    "qwen3.5-27b": ("27b", None),
    "qwen3.5-35b-a3b": ("35b-a3b", None),
    "qwen3.5-122b-a10b": ("122b-a10b", None),
    "qwen3.5-397b-a17b": ("397b-a17b", None),
    "qwen3.6-27b": ("27b", _DFLASH_27B),
    "qwen3.6-35b-a3b": ("35b-a3b", _DFLASH_35B),
    "qwen3.8-27b": ("27b", _DFLASH2_27B),
}

FAMILY_NAMES = tuple(_MODELS)


def family_geometry(name: str) -> ModelGeometry:
    """Return the geometry of a named model, with the drafter published for it.

    Raises UsageError for a name that is not in `FAMILY_NAMES`.
    """
    if name not in _MODELS:
        raise UsageError("unknown model", got=name, want=", ".join(FAMILY_NAMES))
    size, drafter = _MODELS[name]
    row = _SIZES[size]
    return ModelGeometry(_text_geometry(row), row.vision, True, drafter)


def _text_geometry(row: _Row) -> TextGeometry:
    experts = row.feed_forward if isinstance(row.feed_forward, _Experts) else None
    return TextGeometry(
        hidden_size=row.hidden,
        vocab_size=VOCAB_ROWS,
        tie_word_embeddings=row.tied,
        layer_types=layer_types_from_interval(row.layers),
        num_attention_heads=row.heads[0],
        num_key_value_heads=row.heads[1],
        linear_num_key_heads=row.gdn[0],
        linear_num_value_heads=row.gdn[1],
        intermediate_size=row.feed_forward if isinstance(row.feed_forward, int) else None,
        num_experts=experts and experts.number,
        num_experts_per_tok=experts and experts.active,
        moe_intermediate_size=experts and experts.width,
        shared_expert_intermediate_size=experts and experts.shared_width,
    )
