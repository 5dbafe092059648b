"""How far a stored parameter may lie from its source (rules V-71 to V-74)."""

from __future__ import annotations

import math

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.grouped_int import CODES
from ninfer_tools.convert.sources.parameter_source import ParameterSource
from ninfer_tools.convert.sources.quantization import DIRECT

# Two float32 roundings of the same product (rule S-55), and bfloat16 rounding.
_IMPORTED, _BF16 = 2.0**-23, 2.0**-8
_NVFP4, _FP8 = 0.3, 0.0655


def bound_relative_error(format: str, source: ParameterSource) -> float:
    """Return the bound of the relative error of a stored parameter, 0 where bits are equal."""
    if source.kind != DIRECT and source.import_format == format and not _is_picked(source):
        return 0.0 if source.exact else _IMPORTED
    if format == nf.FP32:
        return 0.0
    if format == nf.BF16:
        return 0.0 if source.kind == DIRECT and source.dtype == "BF16" else _BF16
    if format in CODES:
        # All values of a group but the largest lie half a step off, at half a step.
        spread = (nf.FORMATS[format].group - 1) / 4
        return 1.02 * math.sqrt(spread / (CODES[format].high ** 2 + spread))
    return _NVFP4 if format == nf.NVFP4 else _FP8


def smallest_step(format: str, divisor: float) -> float:
    """Return the largest error of values far below the largest one of their tensor.

    `divisor` is the smallest one of an NVFP4 tensor; other formats do not look at it.
    """
    if format in CODES:
        return CODES[format].high * 2.0**-24
    if format == nf.FP8:
        # Rows whose scale would be at most 2^-128 are stored as zeros.
        return 448 * 2.0**-128
    return 6 * 2.0**-10 / divisor if format == nf.NVFP4 else 0.0


def _is_picked(source: ParameterSource) -> bool:
    return source.parameter.residency == "proposal"
