"""Memory that passes through the model take and give back: arithmetic on sizes only.

Specification: `specs/memory.md` (MEM-6, MEM-7). Every figure is the most that one kind of pass
holds at once.
"""

from __future__ import annotations

from ninfer_formats.inventories.geometry import TextGeometry, VisionGeometry

MIB = 1 << 20

# Rows of a product that needs no decoded matrix, and the buffer that larger ones decode into.
SKINNY_ROWS = 16
DECODE_BUFFER = 512 * MIB

# What a round holds of its logits, in copies of float32: the product and its result, edited
# logits, and a draw from the whole vocabulary with keys, order, weights and noise in 8 bytes each.
_LOGIT_COPIES = 20

# Patches that go through a feed-forward of the vision tower at once, and patches of short frames
# that go through the tower at once.
VISION_ROWS = 8192
VISION_PATCHES = 16384


def count_activations(text: TextGeometry, value_bytes: int, tokens: int) -> int:
    """Return the bytes of the widest layer's intermediate results for `tokens` columns."""
    keys, values = text.linear_key_size, text.linear_value_size
    gdn = 2 * (2 * keys + values) + 5 * values
    attention = 5 * text.query_size + 3 * text.key_value_size
    feed = 3 * (text.intermediate_size or 0)
    if text.is_moe:
        active = (text.num_experts_per_tok or 0) * (
            3 * (text.moe_intermediate_size or 0) + text.hidden_size
        )
        feed = active + 3 * (text.shared_expert_intermediate_size or 0)
    widest = max(gdn, attention, feed) + 6 * text.hidden_size
    # Chunked prefill keeps keys, values and updates of the recurrence in float32.
    recurrence = 16 * (values + keys)
    return tokens * (value_bytes * widest + recurrence)


def count_logits(text: TextGeometry, rows: int) -> int:
    """Return the bytes of the logits of a round's `rows` columns, and of drawing from them."""
    return _LOGIT_COPIES * 4 * rows * text.vocab_size


def count_decoded(text: TextGeometry, value_bytes: int, rows: int, with_head: bool) -> int:
    """Return the bytes of the largest matrix that a pass of `rows` columns decodes at once."""
    if rows <= SKINNY_ROWS:
        return 0
    hidden = text.hidden_size
    gdn = 2 * text.linear_key_size + 2 * text.linear_value_size
    attention = 2 * text.query_size + 2 * text.key_value_size
    feed = 2 * (text.shared_expert_intermediate_size or text.intermediate_size or 0)
    outputs = max(gdn, attention, feed, 2 * hidden, text.vocab_size * with_head)
    return min(DECODE_BUFFER, value_bytes * hidden * outputs)


def count_vision(vision: VisionGeometry, value_bytes: int, patches: int) -> int:
    """Return the bytes the tower holds at once for `patches` patches."""
    most = 7 * value_bytes + 4
    blocks = min(patches, VISION_ROWS) * vision.intermediate_size * (2 * value_bytes + 4)
    patches = max(patches, VISION_PATCHES)
    return patches * vision.hidden_size * most + blocks
