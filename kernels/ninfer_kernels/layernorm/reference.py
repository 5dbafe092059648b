"""Layer normalisation in plain torch: the definition. Rule N-30 of specs/numerics.md."""

from __future__ import annotations

import torch


def layernorm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """Return round((x - mean) / sqrt(var + eps) * weight + bias) over the last dimension.

    var is the mean of squared differences from the mean, taken in a second pass: x may be far
    from zero. fp32 up to the one rounding.
    """
    values = x.float()
    centred = values - values.mean(-1, keepdim=True)
    normal = centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
    return (normal * weight.float() + bias.float()).to(x.dtype)
