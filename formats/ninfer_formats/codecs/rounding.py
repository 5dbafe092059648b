"""Round to nearest, ties to even: the only module that rounds a value to a narrower format.

Rules NF-1 to NF-6 of `specs/numeric-formats.md`. Narrow values travel as words: uint16 for
bfloat16 and float16, uint8 for E4M3FN, and uint8 0..15 for E2M1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.errors import UsageError

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
U16 = NDArray[np.uint16]

E4M3_MAX = np.float32(448)
E2M1_MAX = np.float32(6)

_F32_EXPONENT = np.uint32(0x7F800000)


def _minifloat_table(exponent_bits: int, fraction_bits: int, bias: int) -> F32:
    magnitudes = np.arange(2 ** (exponent_bits + fraction_bits))
    exponent, fraction = magnitudes >> fraction_bits, magnitudes & (2**fraction_bits - 1)
    normal = np.ldexp(1.0 + fraction / 2**fraction_bits, exponent - bias)
    subnormal = np.ldexp(fraction / 2**fraction_bits, 1 - bias)
    positive = np.where(exponent > 0, normal, subnormal).astype(np.float32)
    return np.concatenate([positive, -positive])


def _e4m3_table() -> F32:
    table = _minifloat_table(4, 3, 7)
    table[[0x7F, 0xFF]] = np.nan
    table.flags.writeable = False
    return table


def _e2m1_table() -> F32:
    table = _minifloat_table(2, 1, 1)
    table.flags.writeable = False
    return table


# Value of every word; read-only. E4M3FN words 0x7F and 0xFF are NaN.
E4M3_VALUES = _e4m3_table()
E2M1_VALUES = _e2m1_table()


def widen(values: NDArray[Any]) -> F32:
    """Return `values` as float32, exactly.

    Takes float32, float16, or bfloat16 as uint16 words; raises UsageError for any other type,
    because a silent narrowing of float64 would round twice.
    """
    if values.dtype == np.float32:
        return values
    if values.dtype == np.float16:
        return values.astype(np.float32)
    if values.dtype == np.uint16:
        return widen_bf16(values)
    raise UsageError(
        "values have a type that is not taken here",
        got=values.dtype,
        want="float32, float16 or bfloat16 as uint16 words",
    )


def widen_bf16(words: U16) -> F32:
    """Return the float32 values of bfloat16 words, exactly (NaN payloads too)."""
    return (words.astype(np.uint32) << 16).view(np.float32)


def widen_f16(words: U16) -> F32:
    """Return the float32 values of float16 words, exactly."""
    return words.view(np.float16).astype(np.float32)


def round_to_bf16(values: F32) -> U16:
    """Return bfloat16 words; overflow becomes infinity, a NaN keeps its top sixteen bits."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    words = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    nan = np.isnan(values)
    if nan.any():
        kept = (bits[nan] >> 16).astype(np.uint16)
        # A payload in the low half only would read as infinity: make it quiet instead.
        words[nan] = np.where(kept & 0x7F, kept, kept | 0x40)
    return words


def round_to_f16(values: F32) -> U16:
    """Return float16 words, subnormals included; overflow becomes infinity."""
    with np.errstate(over="ignore", under="ignore"):
        return values.astype(np.float16).view(np.uint16)


def divide(numerator: F32 | float, denominator: F32 | float) -> F32:
    """Return the float32 nearest to the float64 quotient; a zero denominator gives infinity."""
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        quotient = np.divide(numerator, denominator, dtype=np.float64)
        return np.asarray(quotient).astype(np.float32)


def round_to_e4m3(values: F32) -> U8:
    """Return E4M3FN words, saturating at 448 and keeping the sign of zero; NaN is not legal."""
    values = np.ascontiguousarray(values)
    bits = values.view(np.uint32)
    magnitude = np.minimum(np.abs(values), E4M3_MAX)
    kept = magnitude.view(np.uint32)
    normal = ((kept + 0x7FFFF + ((kept >> 20) & 1)) >> 20) - np.uint32(120 << 3)
    # Below 2^-6 the grid is uniform with step 2^-9; word 8 is 2^-6 itself.
    subnormal = np.rint(magnitude * np.float32(512)).astype(np.uint32)
    words = np.where(magnitude < np.float32(2**-6), subnormal, normal)
    return (words | (bits >> 31 << 7)).astype(np.uint8)


def round_to_e2m1(values: F32) -> U8:
    """Return E2M1 words 0..15, saturating at 6 and keeping the sign of zero; NaN is not legal."""
    values = np.ascontiguousarray(values)
    magnitude = np.minimum(np.abs(values), E2M1_MAX)
    kept = magnitude.view(np.uint32)
    normal = ((kept + 0x1FFFFF + ((kept >> 22) & 1)) >> 22) - np.uint32(126 << 1)
    # Below 1 the grid is uniform with step 1/2; word 2 is 1 itself.
    subnormal = np.rint(magnitude + magnitude).astype(np.uint32)
    words = np.where(magnitude < np.float32(1), subnormal, normal)
    return (words | (values.view(np.uint32) >> 31 << 3)).astype(np.uint8)


def snap_to_e2m1(magnitudes: F32, out: F32, scratch: F32) -> F32:
    """Write into `out` the E2M1 value nearest to each of `magnitudes` (>= 0), saturating at 6.

    `scratch` has the shape of `magnitudes`. Adding and taking away 1.5 * 2^22 times the leading
    power of two (at least 1) leaves one fraction bit, rounded to even by the addition itself.
    """
    np.bitwise_and(magnitudes.view(np.uint32), _F32_EXPONENT, out=scratch.view(np.uint32))
    np.maximum(scratch, np.float32(1), out=scratch)
    np.multiply(scratch, np.float32(1.5 * 2**22), out=scratch)
    np.add(magnitudes, scratch, out=out)
    np.subtract(out, scratch, out=out)
    return np.minimum(out, E2M1_MAX, out=out)


def round_half_even(values: F32) -> F32:
    """Return each value rounded to a whole number, halves to the even one, in place."""
    return np.rint(values, out=values)
