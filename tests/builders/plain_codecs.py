"""What a value becomes in every numeric format, from `specs/numeric-formats.md` alone.

Whole matrices at once, in float64 with the roundings the rules name; no code of the package, and
no stored bytes: these are the values that a reader must see.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray
LARGEST_CODE = {"q4_g64_fp16": 7, "q5_g64_fp16": 15, "q6_g64_fp16": 31, "q8_g32_fp16": 127}
SMALLEST_CODE = {"q4_g64_fp16": -8, "q5_g64_fp16": -16, "q6_g64_fp16": -32, "q8_g32_fp16": -127}


def round_trip(values: Array, format: str, divisor: np.float32 | None = None) -> Array:
    """Return float32 [N, K] that `values` float32 [N, K] decode to once they are stored.

    NVFP4 is that of `absmax` under `divisor` (NF-43 to NF-45).
    """
    if format == "fp32":
        return values
    if format == "bf16":
        return round_bf16(values)
    if format == "fp8_e4m3fn_row_bf16":
        return _fp8_row(values)
    return _nvfp4(values, divisor) if format == "nvfp4" else _grouped(values, format)


def absmax_divisor(largest: float) -> np.float32:
    """NF-43."""
    return np.float32(2688 / np.float64(largest)) if largest else np.float32(1)


def round_bf16(values: Array) -> Array:
    """NF-1, NF-2: keep 8 significant bits, ties to even; float32 subnormals have fewer."""
    return _round_to(values.astype(np.float64), 8, -126).astype(np.float32)


def _round_to(values: Array, bits: int, smallest: int) -> Array:
    """Round float64 to a significand of `bits` bits, exponents down to `smallest`."""
    exponent = np.maximum(np.frexp(values)[1] - 1, smallest) - (bits - 1)
    return np.ldexp(np.rint(np.ldexp(values, -exponent)), exponent)


def _f32(values: Array) -> Array:
    """One rounding to float32, kept in float64 so that what follows is exact."""
    return np.asarray(values, np.float64).astype(np.float32).astype(np.float64)


def _cut_rows(values: Array, size: int) -> Array:
    """Return float64 [N, ceil(K / size), size], zeros past K (NF-23)."""
    padded = np.pad(values.astype(np.float64), ((0, 0), (0, -values.shape[1] % size)))
    return padded.reshape(len(values), -1, size)


def _join_rows(groups: Array, columns: int) -> Array:
    return groups.reshape(len(groups), -1)[:, :columns].astype(np.float32)


def _grouped(values: Array, format: str) -> Array:
    """NF-20 to NF-26."""
    high, low = LARGEST_CODE[format], SMALLEST_CODE[format]
    groups = _cut_rows(values, 32 if format.startswith("q8") else 64)
    largest = np.abs(groups).max(axis=2, keepdims=True)
    scale = _f32(largest / high).astype(np.float16).astype(np.float64)
    scale = np.where((largest > 0) & (scale == 0), 2.0**-24, scale)
    inverse = _f32(1 / np.where(scale == 0, 1, scale))
    codes = np.clip(np.rint(_f32(groups * inverse)), low, high)
    return _join_rows(codes * scale, values.shape[1])


def _fp8_row(values: Array) -> Array:
    """NF-30 to NF-35; rows too small for a scale do not occur."""
    rows = round_bf16(values).astype(np.float64)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scale = _round_to(_f32(largest / 448), 8, -126)
    inverse = _f32(1 / np.where(scale == 0, 1, scale))
    return (_round_e4m3(_f32(rows * inverse)) * scale).astype(np.float32)


def _round_e4m3(values: Array) -> Array:
    """NF-3."""
    return np.clip(_round_to(values, 4, -6), -448, 448)


def _nvfp4(values: Array, divisor: np.float32 | None) -> Array:
    """NF-40 to NF-45."""
    assert divisor is not None
    scaled = _f32(_cut_rows(values, 16) * np.float64(divisor))
    largest = np.abs(scaled).max(axis=2, keepdims=True)
    scale = _round_e4m3(_f32(largest / 6))
    scale = np.where((largest > 0) & (scale == 0), 2.0**-9, scale)
    codes = np.clip(_round_to(_f32(scaled / np.where(scale == 0, 1, scale)), 2, 0), -6, 6)
    return _join_rows(codes * scale / np.float64(divisor), values.shape[1])
