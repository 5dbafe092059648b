"""q4, q5, q6 and q8: signed integer codes under one float16 multiplier per group of K.

Encoder MAXABS_F16_RECIP_RNE_V1 and its decoder; rules NF-20 to NF-27.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import rounding
from ninfer_formats.codecs.faults import reject_non_finite, reject_where
from ninfer_formats.codecs.rounding import F32, U16

I8 = NDArray[np.int8]
Word = TypeVar("Word", bound=np.generic)

# The smallest positive float16, 2^-24: a group that is not all zero never gets scale zero.
RESCUED_SCALE = 0x0001


@dataclass(frozen=True)
class CodeRange:
    """Codes of one format; the scale maps the largest magnitude to `high`, never to `low`."""

    low: int
    high: int


CODES = {
    nf.Q4: CodeRange(-8, 7),
    nf.Q5: CodeRange(-16, 15),
    nf.Q6: CodeRange(-32, 31),
    nf.Q8: CodeRange(-127, 127),
}


def encode(values: F32, format: str, first_row: int = 0) -> tuple[I8, U16]:
    """Return codes int8 [N, K] and float16 scale words [N, ceil(K / group)].

    `values` is float32 [N, K]; `first_row` only shifts the row named in an error. Raises
    NumericError for NaN or infinity, and for a group whose scale overflows float16.
    """
    n, k = values.shape
    grouped = group_rows(values, nf.FORMATS[format].group)
    largest = np.abs(grouped).max(axis=2)
    reject_non_finite(largest, values, "grouped quantization source", first_row)
    scales = _choose_scales(largest, CODES[format].high, first_row)
    inverse = rounding.divide(1.0, rounding.widen_f16(scales))
    inverse[scales == 0] = 0
    normal = rounding.round_half_even(grouped * inverse[:, :, None])
    np.clip(normal, CODES[format].low, CODES[format].high, out=normal)
    return normal.astype(np.int8).reshape(n, -1)[:, :k], scales


def decode(codes: I8, scales: U16, format: str) -> F32:
    """Return float32 [N, K] of codes int8 [N, K] and scale words [N, ceil(K / group)]."""
    n, k = codes.shape
    grouped = group_rows(codes, nf.FORMATS[format].group)
    return (grouped * rounding.widen_f16(scales)[:, :, None]).reshape(n, -1)[:, :k]


def group_rows(values: NDArray[Word], group: int) -> NDArray[Word]:
    """Return [N, ceil(K / group), group] with zeros past K; a view when K is a multiple."""
    n, k = values.shape
    padding = -k % group
    if padding:
        values = np.pad(values, ((0, 0), (0, padding)))
    return values.reshape(n, -1, group)


def _choose_scales(largest: F32, high: int, first_row: int) -> U16:
    scales = rounding.round_to_f16(rounding.divide(largest, float(high)))
    scales[(scales == 0) & (largest > 0)] = RESCUED_SCALE
    reject_where(
        scales == 0x7C00, "grouped quantization scale is not finite", "group", first_row, largest
    )
    return scales
