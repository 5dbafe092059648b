"""The numeric formats one element at a time, in exact fractions: slow, and independent of numpy.

Written from `specs/numeric-formats.md`; it shares no code with the package and serves as oracle.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

# precision in bits and exponent of the smallest normal number
F64, F32, F16, BF16, E4M3, E2M1 = (53, -1022), (24, -126), (11, -14), (8, -126), (4, -6), (2, 0)
SCALES = {"q4_g64_fp16": (64, -8, 7), "q5_g64_fp16": (64, -16, 15)} | {
    "q6_g64_fp16": (64, -32, 31),
    "q8_g32_fp16": (32, -127, 127),
}


def nearest(value: Fraction, kind: tuple[int, int]) -> Fraction:
    """Round to nearest even without an upper limit; Python rounds a fraction half to even."""
    if value == 0:
        return value
    precision, smallest = kind
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, smallest) - precision + 1)
    return round(value / unit) * unit


def quotient(a: Fraction, b: Fraction) -> Fraction:
    return nearest(nearest(a / b, F64), F32)


def e4m3_value(word: int) -> Fraction:
    exponent, fraction = word >> 3 & 15, word & 7
    if exponent == 0:
        return Fraction(fraction, 512)
    return Fraction(8 + fraction, 8) * Fraction(2) ** (exponent - 7)


def e4m3_word(value: Fraction, negative: bool) -> int:
    rounded = min(nearest(abs(value), E4M3), Fraction(448))
    return next(w for w in range(127) if e4m3_value(w) == rounded) | negative << 7


E2M1_MAGNITUDES = [Fraction(x, 2) for x in (0, 1, 2, 3, 4, 6, 8, 12)]


def e2m1_word(value: Fraction, negative: bool) -> int:
    return E2M1_MAGNITUDES.index(min(nearest(abs(value), E2M1), Fraction(6))) | negative << 3


def f16_word(value: Fraction) -> int:
    return struct.unpack("<H", struct.pack("<e", float(value)))[0]


def bf16_word(value: Fraction) -> int:
    return struct.unpack("<I", struct.pack("<f", float(value)))[0] >> 16


def is_negative(value: float) -> bool:
    return math.copysign(1, value) < 0


def encode_group(values: list[float], low: int, high: int) -> tuple[list[int], int]:
    """Codes and scale word of one group."""
    exact = [Fraction(x) for x in values]
    amax = max(abs(x) for x in exact)
    if amax == 0:
        return [0] * len(values), 0
    scale = nearest(quotient(amax, Fraction(high)), F16) or Fraction(1, 2**24)
    inverse = quotient(Fraction(1), scale)
    codes = [max(low, min(high, round(nearest(x * inverse, F32)))) for x in exact]
    return codes, f16_word(scale)


def encode_grouped(rows: list[list[float]], format: str) -> tuple[list[list[int]], list[list[int]]]:
    size, low, high = SCALES[format]
    codes, scales = [], []
    for row in rows:
        groups = [encode_group(row[at : at + size], low, high) for at in range(0, len(row), size)]
        codes.append([code for group, _ in groups for code in group])
        scales.append([word for _, word in groups])
    return codes, scales


def encode_fp8_row(row: list[float]) -> tuple[list[int], int]:
    """Codes and scale word of one row; a row too small for its scale becomes zeros."""
    exact = [nearest(Fraction(x), BF16) for x in row]
    amax = max(abs(x) for x in exact)
    if amax == 0:
        return [0] * len(row), 0
    scale = nearest(quotient(amax, Fraction(448)), BF16) or Fraction(1, 2**133)
    inverse = quotient(Fraction(1), scale)
    if inverse >= 2**128:
        return [0] * len(row), 0
    codes = [
        e4m3_word(nearest(x * inverse, F32), is_negative(source))
        for x, source in zip(exact, row, strict=True)
    ]
    return codes, bf16_word(scale)


def encode_nvfp4_row(row: list[float], divisor: float) -> tuple[list[int], list[int]]:
    codes, scales = [], []
    for at in range(0, len(row), 16):
        block = row[at : at + 16]
        scaled = [nearest(Fraction(x) * Fraction(divisor), F32) for x in block]
        amax = max(abs(y) for y in scaled)
        word = e4m3_word(nearest(amax / 6, F32), False) or int(amax > 0)
        width = e4m3_value(word) or Fraction(1)
        for y, source in zip(scaled, block, strict=True):
            codes.append(e2m1_word(nearest(y / width, F32), is_negative(source)))
        scales.append(word)
    return codes, scales


def nvfp4_value(code: int, scale: int, divisor: float) -> float:
    magnitude = E2M1_MAGNITUDES[code & 7] * e4m3_value(scale) / Fraction(divisor)
    return math.copysign(float(nearest(magnitude, F32)), -1 if code & 8 else 1)


def fp8_value(code: int, scale: int) -> float:
    width = Fraction(struct.unpack("<f", struct.pack("<I", scale << 16))[0])
    magnitude = nearest(e4m3_value(code & 127) * width, F32)
    return math.copysign(float(magnitude), -1 if code & 128 else 1)
