"""What values a parameter gets: its logical name decides centre and spread."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

# Random numbers enter every payload as 16-bit words that index a table of this many values.
TABLE_SIZE = 1 << 16


@dataclass(frozen=True)
class Distribution:
    """A continuous distribution, tabulated at 65536 equally likely points.

    `kind` is "normal" (`low` = mean, `high` = standard deviation), "uniform", "log_of_uniform"
    (log of U(low, high)) or "softplus_inverse" (the x whose softplus is log-uniform in low..high).
    """

    kind: str
    low: float
    high: float


_EMBEDDING_STD = 0.02
_NORM_STD = 0.05
# The zero-centred norms of the family multiply by 1 + w; the others multiply by w itself.
_ZERO_CENTRED_NORM = Distribution("normal", 0.0, _NORM_STD)
_PLAIN_NORM = Distribution("normal", 1.0, _NORM_STD)
_BIAS = Distribution("normal", 0.0, 0.02)

# Calibration sets divisors to 6 * 448 / amax; activations of a normed stream reach about 8.
_TYPICAL_DIVISOR = 6 * 448 / 8

_RULES: tuple[tuple[str, Distribution], ...] = (
    (r"gdn/a_log$", Distribution("log_of_uniform", 1.0, 16.0)),
    # Step sizes of 0.001 to 0.1, the range gated delta rules are initialised with.
    (r"gdn/dt_bias$", Distribution("softplus_inverse", 1e-3, 1e-1)),
    (r"gdn/convolution$", Distribution("normal", 0.0, 0.5)),
    (r"gdn/norm$", _PLAIN_NORM),
    (r"^dflash2?/.*norm$", _PLAIN_NORM),
    (r"^vision/.*norm\d?[_/]weight$", _PLAIN_NORM),
    (r"(^|[_/])bias$", _BIAS),
    (r"norm$", _ZERO_CENTRED_NORM),
    (r"base_kernel$", Distribution("normal", 0.5, 0.1)),
    (r"(token|position)_embedding$", Distribution("normal", 0.0, _EMBEDDING_STD)),
    (
        r"input_(scale_)?divisor$",
        Distribution("uniform", 0.75 * _TYPICAL_DIVISOR, 1.25 * _TYPICAL_DIVISOR),
    ),
)
_COMPILED_RULES = tuple((re.compile(pattern), rule) for pattern, rule in _RULES)


def choose_distribution(parameter: str, shape: tuple[int, ...]) -> Distribution:
    """Return the distribution of a logical parameter (its name as in `specs/inventories.md`).

    Names that no rule knows are projections: zero mean and standard deviation 1/sqrt(K), which
    keeps the scale of the activations. K is the last size, or for a convolution over patches
    (rank 4 and 5) the product of all sizes but the first.
    """
    for pattern, rule in _COMPILED_RULES:
        if pattern.search(parameter):
            return rule
    fan_in = math.prod(shape[1:]) if len(shape) > 3 else (shape[-1] if shape else 1)
    std = 1 / math.sqrt(fan_in)
    # The per-token part of a dynamic convolution is a small correction of its base kernel.
    return Distribution("normal", 0.0, 0.1 * std if "kernel_projection" in parameter else std)


def tabulate(distribution: Distribution) -> np.ndarray:
    """Return float64 [65536]: the quantiles of the distribution, ascending."""
    low, high = distribution.low, distribution.high
    if distribution.kind == "normal":
        return low + high * normal_quantiles()
    u = (np.arange(TABLE_SIZE) + 0.5) / TABLE_SIZE
    if distribution.kind == "uniform":
        return low + (high - low) * u
    if distribution.kind == "log_of_uniform":
        return np.log(low + (high - low) * u)
    if distribution.kind == "softplus_inverse":
        return np.log(np.expm1(low * (high / low) ** u))
    raise ValueError(f"unknown kind of distribution: {distribution.kind}")


def spread(distribution: Distribution) -> float:
    """Return the root mean square that scaled integers and floats of this role should have."""
    if distribution.kind == "normal" and distribution.low == 0:
        return distribution.high
    return float(np.sqrt(np.mean(tabulate(distribution) ** 2)))


@functools.cache
def normal_quantiles() -> np.ndarray:
    """Return float64 [65536], read-only: the standard normal distribution, tabulated."""
    inverse = NormalDist().inv_cdf
    upper = np.array([inverse((i + 0.5) / TABLE_SIZE) for i in range(TABLE_SIZE // 2, TABLE_SIZE)])
    quantiles = np.concatenate([-upper[::-1], upper])
    quantiles.setflags(write=False)
    return quantiles
