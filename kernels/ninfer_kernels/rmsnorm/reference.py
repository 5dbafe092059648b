"""RMS normalisation in plain torch: the definition. Rules N-20 to N-22 of specs/numerics.md."""

from __future__ import annotations

import torch


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: bool) -> torch.Tensor:
    """Return round(x / sqrt(mean(x^2) + eps) * gain) [..., C]; gain is 1 + weight if `offset`.

    Everything is fp32 up to the one rounding to the type of `x`.
    """
    gain = weight.float() + 1.0 if offset else weight.float()
    return (_normalise(x.float(), eps) * gain).to(x.dtype)


def add_rmsnorm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, offset: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (norm of s, s) with s = round(x + residual): the norm sees the stored sum."""
    total = (x.float() + residual.float()).to(x.dtype)
    return rmsnorm(total, weight, eps, offset), total


def gated_rmsnorm(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """Return round(round(round(x_hat) * weight) * silu(gate)) [T, H, D], D normalised alone.

    The inner roundings are those of type promotion: x_hat to the type of `x`, the product to
    the wider of the types of `x` and `weight` (nothing when either is fp32).
    """
    normal = _normalise(x.float(), eps).to(x.dtype)
    scaled = (normal * weight).float()
    return (scaled * torch.nn.functional.silu(gate.float())).to(x.dtype)


def _normalise(values: torch.Tensor, eps: float) -> torch.Tensor:
    return values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + eps)
