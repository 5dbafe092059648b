"""NVFP4 rows decoded two codes at a time: several times faster than code by code, equal bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.codecs.legality import reject_illegal
from ninfer_formats.codecs.rounding import E2M1_VALUES, E4M3_VALUES, F32
from ninfer_formats.layouts.block_scale import BLOCK, gather_scales
from ninfer_formats.layouts.rows import RowView, check_range, row_chunks, row_divisors, scale_groups

# Packed bytes at a time: the values of so many stay in a second-level cache.
_CHUNK_BYTES = 1 << 15


def _pair_table() -> NDArray[np.uint64]:
    """Return the two float32 values of every byte, smaller k first, as one word."""
    bytes_ = np.arange(256)
    pairs = np.stack([E2M1_VALUES[bytes_ & 15], E2M1_VALUES[bytes_ >> 4]], axis=1)
    table = np.ascontiguousarray(pairs).view(np.uint64)[:, 0]
    table.flags.writeable = False
    return table


_PAIRS = _pair_table()


def decode_nvfp4_rows(view: RowView, begin: int, end: int) -> F32:
    """Return float32 [end - begin, K], as `tensors.decode_view` does; NumericError likewise."""
    check_range(view, begin, end)
    reject_illegal(view, begin, end)
    k, divisors = view.shape[1], row_divisors(view)
    values = np.empty((end - begin, k), np.float32)
    for first, last in row_chunks(view, begin, end, _CHUNK_BYTES):
        scales = gather_scales(view.planes["scales"], first, last, scale_groups(view))
        pairs = _PAIRS[view.planes["codes"][first:last]].view(np.float32)
        blocks = pairs.reshape(last - first, -1, BLOCK)
        blocks *= E4M3_VALUES[scales][:, :, None]
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            np.divide(
                pairs[:, :k], divisors[first:last, None], out=values[first - begin : last - begin]
            )
    return values
