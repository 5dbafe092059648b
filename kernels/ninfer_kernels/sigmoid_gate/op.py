"""Sigmoid gate: checks, the choice of implementation, the launch."""

from __future__ import annotations

import torch

from ninfer_kernels.launch import TRITON, choose_backend
from ninfer_kernels.sigmoid_gate import reference


def sigmoid_gate(
    attended: torch.Tensor,
    gate: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Return attended * sigmoid(gate) [T, H, D] in the type of `attended`.

    Both [T, H, D], both bf16 or both fp32, D contiguous and any stride along T and H (the gate is
    the second half of every head of the [q | gate] projection). `out` is contiguous and may be
    `attended`. Rule N-29. Raises ValueError for other shapes and types.
    """
    _check("attended", attended, attended)
    _check("gate", gate, attended)
    if out is None:
        out = torch.empty(attended.shape, dtype=attended.dtype, device=attended.device)
    _check("out", out, attended)
    if not out.is_contiguous():
        raise ValueError(f"out: got strides {out.stride()}, want contiguous")
    if choose_backend(attended, backend) == TRITON:
        from ninfer_kernels.sigmoid_gate import kernel

        kernel.launch(attended, gate, out)
    else:
        out.copy_(reference.sigmoid_gate(attended, gate))
    return out


def _check(name: str, tensor: torch.Tensor, like: torch.Tensor) -> None:
    typed = tensor.dtype == like.dtype and tensor.dtype in (torch.float32, torch.bfloat16)
    if tensor.ndim != 3 or tensor.shape != like.shape or not typed or tensor.stride(-1) != 1:
        got = f"{list(tensor.shape)} {tensor.dtype}"
        want = f"[T, H, D] = {list(like.shape)} {like.dtype}, bf16 or fp32, D contiguous"
        raise ValueError(f"{name}: got {got}, want {want}")
