"""Rotary embedding in plain torch: the definition. Rules N-23 to N-26 of specs/numerics.md."""

from __future__ import annotations

import torch

from ninfer_kernels.rope.rotation import Rotation


def normalise(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: bool) -> torch.Tensor:
    """Return the fp32 RMS norm of x [T, H, D] per head, unrounded."""
    values = x.float()
    gain = weight.float() + 1.0 if offset else weight.float()
    return values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + eps) * gain


def rotary_table(
    positions: torch.Tensor, rotation: Rotation, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return fp32 (cos, sin) [T, R/2] of positions int32 [A, T].

    angle = fp32(position) * inv_freq, one fp32 rounding; cos and sin of that very fp32 number.
    """
    steps = positions.float()[rotation.axes.long()].T
    angles = steps * rotation.inverse_frequencies
    tables = (torch.cos(angles), torch.sin(angles))
    scaled = [table * rotation.attention_factor for table in tables]
    if rotation.rounds_table:
        scaled = [table.to(dtype).float() for table in scaled]
    return scaled[0], scaled[1]


def rotate(values: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return fp32 [T, H, D] with (a, b), the halves of the first R dimensions, turned.

    a' = a cos - b sin, b' = b cos + a sin; dimensions R and above pass.
    """
    half = cos.shape[1]
    cos, sin = cos[:, None], sin[:, None]
    first, second = values[..., :half], values[..., half : 2 * half]
    turned = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat([*turned, values[..., 2 * half :]], dim=-1)
