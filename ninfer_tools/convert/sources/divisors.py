"""NVFP4 global scales as divisors (rules S-55 and S-56)."""

from __future__ import annotations

import numpy as np

from ninfer_formats.codecs.rounding import E2M1_VALUES, E4M3_VALUES, F32


def _products() -> F32:
    """Return every value above zero of e2m1(code) * e4m3(scale), exact in float32."""
    values = np.multiply.outer(E2M1_VALUES[1:8], E4M3_VALUES[1:0x7F])
    unique = np.unique(values)
    unique.flags.writeable = False
    return unique


PRODUCTS = _products()


def invert_multiplier(multiplier: np.float32) -> tuple[np.float32, bool]:
    """Return the divisor for a multiplier, and whether it decodes every weight to the same bits.

    The divisor is the float32 nearest to the reciprocal. A weight is p * multiplier in the source
    and p / divisor in an artifact, each rounded once to float32. The two exact values differ by
    at most 2^-24 relative, less than one unit in the last place; so the rounded ones differ by
    at most one unit, 2^-23 relative (in the normal range of float32).
    """
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        divisor = np.float32(1 / np.float64(multiplier))
        return divisor, bool(np.array_equal(PRODUCTS * multiplier, PRODUCTS / divisor))
