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

# Bytes of a round for each token of the vocabulary: logits and edited logits of every column; then,
# for a draw from the whole vocabulary, either what sorts and filters every column, or what is left
# of that with the random numbers, in words of 8 bytes, of the one column in which a lane draws.
_COLUMN_LOGITS = 8
_COLUMN_SORT, _COLUMN_SORTED, _LANE_NOISE = 56, 27, 160

# Bytes for each pair of a token and an expert beside the experts' rows: its place among the pairs
# sorted by expert, with what the sort holds. Logits of the router lie twice in float32.
_PAIR_ORDER = 64

# Patches that go through a feed-forward of the vision tower at once, and patches of short frames
# that go through the tower at once.
VISION_ROWS = 8192
VISION_PATCHES = 16384

# Bytes of a patch's place: row, column, indices and weights of its positions.
_PATCH_PLACES = 64


def count_activations(text: TextGeometry, value_bytes: int, tokens: int) -> int:
    """Return the bytes of the widest layer's intermediate results for `tokens` columns."""
    keys, values = text.linear_key_size, text.linear_value_size
    gdn = 2 * (2 * keys + values) + 5 * values
    attention = 5 * text.query_size + 3 * text.key_value_size
    feed, order = 3 * (text.intermediate_size or 0), 0
    if text.is_moe:
        pairs = text.num_experts_per_tok or 0
        active = pairs * (3 * (text.moe_intermediate_size or 0) + text.hidden_size)
        order = pairs * _PAIR_ORDER + 8 * (text.num_experts or 0)
        feed = active + 3 * (text.shared_expert_intermediate_size or 0)
    widest = max(gdn, attention, feed) + 6 * text.hidden_size
    # Chunked prefill keeps keys, values and updates of the recurrence in float32.
    recurrence = 16 * (values + keys)
    return tokens * (value_bytes * widest + recurrence + order)


def count_logits(text: TextGeometry, rows: int) -> int:
    """Return the bytes of the logits of a round's `rows` columns, as they are and edited."""
    return _COLUMN_LOGITS * rows * text.vocab_size


def count_draw(text: TextGeometry, lanes: int, width: int) -> int:
    """Return the bytes of a draw from the whole vocabulary beside the logits."""
    most = max(width * _COLUMN_SORT, width * _COLUMN_SORTED + _LANE_NOISE)
    return lanes * most * text.vocab_size


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


def count_vision(vision: VisionGeometry, outputs: int, value_bytes: int, patches: int) -> int:
    """Return the bytes the tower holds at once for `patches` patches: of its input, of attention,
    of a feed-forward and of the merger whichever is most. Its rows have `outputs` values.

    A product with a bias holds its sums in float32 beside its result, and its decoded matrix.
    """
    e, hidden, inner = value_bytes, vision.hidden_size, vision.intermediate_size
    patches = max(patches, VISION_PATCHES)
    rows, pixels, merged = min(patches, VISION_ROWS), vision.patch_values, vision.merged_size
    stages = (
        # Pixels, their projection and its sums; or the interpolated positions.
        patches * (e * pixels + (e + 4) * hidden) + e * pixels * hidden,
        patches * (12 + e) * hidden,
        # The stream, query, key and value, two of them rotated, one laid out anew, the result.
        patches * 8 * e * hidden,
        patches * 2 * e * hidden + rows * ((e + 4) * inner + e * hidden) + e * hidden * inner,
        patches * (4 * e + 4) * hidden + e * merged * merged,
        patches * (4 * e * hidden + (e + 4) * outputs // 4) + e * merged * outputs,
    )
    return max(stages) + patches * _PATCH_PLACES
