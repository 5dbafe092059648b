"""The definition of `swiglu` in plain torch, on any device."""

from __future__ import annotations

import torch


def swiglu_reference(gate: torch.Tensor, up: torch.Tensor, out: torch.Tensor) -> None:
    """Write y = g * sigmoid(g) * u to out, in float32 with one rounding."""
    wide = gate.float()
    out.copy_(wide * torch.sigmoid(wide) * up.float())
