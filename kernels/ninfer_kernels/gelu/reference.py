"""GELU in plain torch: the definition. Rule N-31 of specs/numerics.md."""

from __future__ import annotations

import math

import torch

SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def gelu(x: torch.Tensor, kind: str) -> torch.Tensor:
    """Return round(gelu(x)), fp32 up to the one rounding.

    tanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); erf: x/2 (1 + erf(x / sqrt(2))).
    """
    values = x.float()
    if kind == "tanh":
        inner = torch.tanh(SQRT_2_OVER_PI * (values + 0.044715 * values**3))
    else:
        inner = torch.erf(values * math.sqrt(0.5))
    return (0.5 * values * (1.0 + inner)).to(x.dtype)
