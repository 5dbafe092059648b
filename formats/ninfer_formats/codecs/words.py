"""Codes and scales of rows of any format: the step between planes and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import direct, fp8_row, grouped_int, nvfp4
from ninfer_formats.layouts import block_scale, contiguous, row_scale, row_split
from ninfer_formats.layouts.planes import Planes
from ninfer_formats.layouts.rows import RowView, row_divisors, scale_groups


@dataclass(frozen=True)
class Words:
    """Stored words of rows [N, K]; what a format does not have is an empty array.

    | format | codes [N, K] | scales | divisors |
    |---|---|---|---|
    | bf16, fp32, int32 | uint16 or uint32 words | none | none |
    | q4, q5, q6, q8 | int8 | uint16 [N, ceil(K / group)], float16 words | none |
    | nvfp4 | uint8 0..15 | uint8 [N, ceil(K / 16)], E4M3FN words | float32, one per row |
    | fp8_e4m3fn_row_bf16 | uint8, E4M3FN words | uint16 [N], bfloat16 words | none |
    """

    codes: NDArray[Any]
    scales: NDArray[Any]
    divisors: NDArray[np.float32]


_NONE = np.empty(0, np.uint8)
_NO_DIVISORS = np.empty(0, np.float32)


def unpack_words(view: RowView, begin: int, end: int) -> Words:
    """Return the words of rows `begin` to `end` of a view."""
    rows = {name: plane[begin:end] for name, plane in view.planes.items()}
    if view.layout == nf.CONTIGUOUS:
        return Words(contiguous.unpack(rows, direct.WORD_TYPES[view.format]), _NONE, _NO_DIVISORS)
    if view.layout == nf.ROW_SPLIT:
        return Words(*row_split.unpack(rows, view.format, view.shape[1]), _NO_DIVISORS)
    if view.layout == nf.ROW_SCALE:
        return Words(*row_scale.unpack(rows), _NO_DIVISORS)
    codes = block_scale.unpack_codes(rows["codes"])[:, : view.shape[1]]
    scales = block_scale.gather_scales(view.planes["scales"], begin, end, scale_groups(view))
    return Words(codes, scales, row_divisors(view)[begin:end])


def pack_words(codes: NDArray[Any], scales: NDArray[Any], format: str) -> Planes:
    """Return plane rows of the words of a matrix, as `Words` describes; divisors stay out."""
    if format == nf.NVFP4:
        return {
            "codes": block_scale.pack_codes(codes),
            "scales": block_scale.swizzle(scales),
        }
    if format == nf.FP8:
        return row_scale.pack(codes, scales)
    return row_split.pack(codes, scales, format)


def decode_words(words: Words, format: str) -> NDArray[Any]:
    """Return float32 [N, K] (int32 for int32) of words."""
    if format == nf.NVFP4:
        return nvfp4.decode(words.codes, words.scales, words.divisors)
    if format == nf.FP8:
        return fp8_row.decode(words.codes, words.scales)
    if format in grouped_int.CODES:
        return grouped_int.decode(words.codes, words.scales, format)
    return direct.decode(words.codes, format)
