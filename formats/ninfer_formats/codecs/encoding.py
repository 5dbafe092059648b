"""Encoding whole tensors chunk by chunk, so that temporaries stay small (rule NF-7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import direct, fp8_row, grouped_int, nvfp4, nvfp4_search, rounding
from ninfer_formats.codecs.words import pack_words
from ninfer_formats.layouts import block_scale, contiguous
from ninfer_formats.layouts.geometry import plan_tensor
from ninfer_formats.layouts.planes import U8, Planes, blank_tensor

# Methods of each format, the default first.
METHODS = {
    **dict.fromkeys((nf.BF16, nf.FP32, nf.INT32), ("cast",)),
    **dict.fromkeys((nf.Q4, nf.Q5, nf.Q6, nf.Q8, nf.FP8), ("absmax",)),
    nf.NVFP4: ("absmax", "search"),
}

CHUNK_VALUES = 1 << 18


def encode_direct(values: NDArray[Any], format: str) -> U8:
    """Return the encoded bytes of `values` of any rank in bf16, fp32 or int32."""
    flat, planes = blank_tensor(plan_tensor(format, nf.CONTIGUOUS, values.shape))
    source = values if values.ndim else values.reshape(1)
    for begin, end in _row_ranges(source, 1):
        rows = contiguous.pack(direct.encode(source[begin:end], format))
        planes["values"][begin:end] = rows["values"]
    return flat


def encode_matrix(values: NDArray[Any], format: str) -> U8:
    """Return the encoded bytes of [N, K] in an integer format or FP8."""
    layout = nf.FORMATS[format].layout
    flat, planes = blank_tensor(plan_tensor(format, layout, values.shape))
    for begin, rows in _float_rows(values, 1):
        if format == nf.FP8:
            codes, scales = fp8_row.encode(rows, begin)
        else:
            codes, scales = grouped_int.encode(rows, format, begin)
        place_rows(planes, pack_words(codes, scales, format), begin)
    return flat


def encode_nvfp4(values: NDArray[Any], method: str) -> U8:
    """Return the encoded bytes of [N, K] in nvfp4, by `absmax` or `search`."""
    flat, planes = blank_tensor(plan_tensor(nf.NVFP4, nf.BLOCK_SCALE, values.shape))
    largest = max(nvfp4.largest_magnitude(rows, at) for at, rows in _float_rows(values))
    absmax = nvfp4.choose_divisor(largest)
    if method == "absmax":
        _fill_absmax(planes, values, absmax)
        return flat
    sample = rounding.widen(_sample_rows(values))
    divisor = nvfp4_search.choose_divisor(sample, largest)
    if not _fill_searched(planes, values, divisor, absmax):
        _fill_searched(planes, values, absmax, absmax)
    return flat


def place_rows(planes: Planes, packed: Planes, begin: int) -> None:
    """Copy packed rows into a tensor's planes from row `begin` (a tile row for NVFP4) on."""
    for name, rows in packed.items():
        first = begin // block_scale.TILE_ROWS if name == "scales" else begin
        planes[name][first : first + len(rows)] = rows


def _fill_absmax(planes: Planes, values: NDArray[Any], divisor: np.float32) -> None:
    for begin, rows in _float_rows(values):
        place_rows(planes, pack_words(*nvfp4.encode(rows, divisor), nf.NVFP4), begin)
    planes["divisor"][:] = block_scale.pack_divisors(np.array([divisor]))


def _fill_searched(
    planes: Planes, values: NDArray[Any], divisor: np.float32, absmax: np.float32
) -> bool:
    """Fill the planes; return whether the tensor came out no worse than with plain absmax.

    The divisor was chosen on a sample, so another one than absmax has to prove itself.
    """
    reached: list[float] = []
    plain: list[float] = []
    for begin, rows in _float_rows(values):
        codes, scales, found = nvfp4_search.encode(rows, divisor)
        place_rows(planes, pack_words(codes, scales, nf.NVFP4), begin)
        if divisor != absmax:
            reached += nvfp4_search.sum_tiles(found.errors, scales.shape[1])
            plain += nvfp4_search.sum_tiles(
                nvfp4_search.absmax_errors(rows, absmax), scales.shape[1]
            )
    planes["divisor"][:] = block_scale.pack_divisors(np.array([divisor]))
    return nvfp4_search.is_no_worse(reached, divisor, plain, absmax)


def _sample_rows(values: NDArray[Any]) -> NDArray[Any]:
    return values[:: nvfp4_search.sample_step(*values.shape)]


def _float_rows(
    values: NDArray[Any], step: int = block_scale.TILE_ROWS
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    for begin, end in _row_ranges(values, step):
        yield begin, rounding.widen(values[begin:end])


def _row_ranges(values: NDArray[Any], step: int) -> Iterator[tuple[int, int]]:
    per_row = max(1, values[:1].size)
    rows = -(-max(1, CHUNK_VALUES // per_row) // step) * step
    for begin in range(0, len(values), rows):
        yield begin, min(begin + rows, len(values))
