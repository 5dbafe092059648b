"""nvfp4: E2M1 codes, one E4M3FN scale per 16 values of a row, one float32 divisor per tensor.

Value = e2m1(code) * e4m3(scale) / divisor; rules NF-40 to NF-46.
"""

from __future__ import annotations

import numpy as np

from ninfer_formats.codecs import rounding
from ninfer_formats.codecs.faults import reject_non_finite
from ninfer_formats.codecs.grouped_int import group_rows
from ninfer_formats.codecs.rounding import F32, U8
from ninfer_formats.errors import NumericError

BLOCK = 16
MAX_SCALE = 0x7E
RESCUED_SCALE = 0x01

# Values rounded at a time, so that the temporaries stay in a second-level cache.
_TILE_VALUES = 1 << 16


def choose_divisor(largest: float) -> np.float32:
    """Return the absmax divisor 6 * 448 / `largest` as float32; 1 for a tensor of zeros.

    Below about 7.9e-36 the quotient leaves float32 and the largest finite value stands in.
    """
    if largest == 0:
        return np.float32(1)
    quotient = np.float64(6 * 448) / np.float64(largest)
    return np.float32(min(quotient, float(np.finfo(np.float32).max)))


def check_divisor(divisor: np.float32 | float) -> np.float32:
    """Return `divisor` as float32; raises NumericError unless it is finite and above zero."""
    divisor = np.float32(divisor)
    if not (np.isfinite(divisor) and divisor > 0):
        raise NumericError("NVFP4 divisor is not legal", got=divisor, want="finite and > 0")
    return divisor


def largest_magnitude(values: F32, first_row: int = 0) -> float:
    """Return the largest magnitude of float32 [N, K]; raises NumericError for NaN, infinity."""
    largest = np.abs(values).max(axis=1, keepdims=True)
    reject_non_finite(largest, values, "NVFP4 quantization source", first_row)
    return float(largest.max())


def encode(values: F32, divisor: np.float32) -> tuple[U8, U8]:
    """Return codes uint8 [N, K] (0..15) and absmax scale words [N, ceil(K / 16)].

    `values` is finite float32 [N, K]; every operation rounds once to float32.
    """
    scaled = scale_blocks(values, divisor)
    scales = absmax_scales(np.abs(scaled).max(axis=2))
    return encode_blocks(scaled, scales)[:, : values.shape[1]], scales


def scale_blocks(values: F32, divisor: np.float32) -> F32:
    """Return values times divisor as [N, ceil(K / 16), 16], zeros past K."""
    with np.errstate(over="ignore", under="ignore"):
        return group_rows(values * divisor, BLOCK)


def absmax_scales(largest: F32) -> U8:
    """Return the scale word of each block from its largest scaled magnitude |value * divisor|."""
    scales = rounding.round_to_e4m3(largest / np.float32(6))
    scales[(scales == 0) & (largest > 0)] = RESCUED_SCALE
    return scales


def encode_blocks(scaled: F32, scales: U8) -> U8:
    """Return codes [N, G * 16] of values times divisor [N, G, 16] under scale words [N, G]."""
    # A zero scale belongs to a block of zeros; dividing it by one keeps the signs of zero.
    widths = rounding.E4M3_VALUES[scales]
    widths[scales == 0] = 1
    codes = np.empty(scaled.shape, np.uint8)
    step = max(1, _TILE_VALUES // scaled[:1].size)
    for begin in range(0, len(scaled), step):
        rows = slice(begin, begin + step)
        codes[rows] = rounding.round_to_e2m1(scaled[rows] / widths[rows, :, None])
    return codes.reshape(len(scaled), -1)


def decode(codes: U8, scales: U8, divisors: F32) -> F32:
    """Return float32 [N, K] of codes [N, K], scale words [N, ceil(K / 16)], divisors [N].

    The product is exact in float32, so the division is the one rounding.
    """
    products = group_rows(rounding.E2M1_VALUES[codes], BLOCK)
    products = products * rounding.E4M3_VALUES[scales][:, :, None]
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        return products.reshape(len(codes), -1)[:, : codes.shape[1]] / divisors[:, None]
