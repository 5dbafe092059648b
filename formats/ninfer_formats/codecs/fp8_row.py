"""fp8_e4m3fn_row_bf16: E4M3FN codes under one bfloat16 multiplier per row.

Encoder MAXABS_BF16S_RECIP_E4M3FN_RNE_V1 and its decoder; rules NF-30 to NF-35.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ninfer_formats.codecs import rounding
from ninfer_formats.codecs.faults import reject_non_finite, reject_where
from ninfer_formats.codecs.rounding import F32, U8, U16

TinyRows = Literal["zeros", "error"]


def encode(values: F32, first_row: int = 0, tiny_rows: TinyRows = "zeros") -> tuple[U8, U16]:
    """Return codes uint8 [N, K] and bfloat16 scale words [N] of float32 [N, K].

    Values are first rounded to bfloat16. `tiny_rows` says what becomes of a row whose scale is
    at most 2^-128, where the reciprocal overflows: a row of zeros, or NumericError as in the
    original project. Raises NumericError for NaN and infinity.
    """
    source = rounding.widen_bf16(rounding.round_to_bf16(values))
    largest = np.abs(source).max(axis=1, keepdims=True)
    reject_non_finite(largest, source, "FP8 row quantization source", first_row)
    scales = rounding.round_to_bf16(rounding.divide(largest, 448.0))
    inverse = rounding.divide(1.0, rounding.widen_bf16(scales))
    tiny = np.isinf(inverse) & (largest > 0)
    if tiny_rows == "error":
        reject_where(tiny, "FP8 row is too small to normalize", "column", first_row, largest)
    zero = np.isinf(inverse)
    scales[zero] = 0
    inverse[zero] = 0
    codes = rounding.round_to_e4m3(source * inverse)
    codes[zero[:, 0]] = 0
    return codes, scales[:, 0]


def decode(codes: U8, scales: U16) -> F32:
    """Return float32 [N, K] of codes uint8 [N, K] and bfloat16 scale words [N]."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return rounding.E4M3_VALUES[codes] * rounding.widen_bf16(scales)[:, None]
