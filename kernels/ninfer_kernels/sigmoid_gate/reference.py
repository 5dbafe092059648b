"""Sigmoid gate in plain torch: the definition. Rule N-29 of specs/numerics.md."""

from __future__ import annotations

import torch


def sigmoid_gate(attended: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Return round(attended * sigmoid(gate)), fp32 up to the one rounding."""
    return (attended.float() * torch.sigmoid(gate.float())).to(attended.dtype)
