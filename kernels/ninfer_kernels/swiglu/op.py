"""The gated activation of feed-forward layers."""

from __future__ import annotations

import torch

from ninfer_kernels.launch import REFERENCE, choose_backend
from ninfer_kernels.swiglu.reference import swiglu_reference


def swiglu(
    gate: torch.Tensor,
    up: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Return [T, I]: silu(gate) * up with silu(g) = g * sigmoid(g) (rule N-13).

    Without `up`, `gate` is [T, 2 * I] and holds the gate's columns, then those of up. Both are
    float32 or bfloat16 with contiguous rows, as is `out`. Raises ValueError for shapes, dtypes
    or devices that do not fit.
    """
    if up is None:
        if gate.dim() != 2 or gate.shape[1] % 2:
            raise ValueError(f"gate of swiglu: got {list(gate.shape)}, want [T, 2 * I]")
        gate, up = gate.chunk(2, dim=1)
    if out is None:
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    for name, tensor in (("gate", gate), ("up", up), ("out", out)):
        _check(name, tensor, gate)
    if gate.numel() == 0:
        return out
    if choose_backend(gate, backend) == REFERENCE:
        swiglu_reference(gate, up, out)
    else:
        from ninfer_kernels.swiglu.kernel import launch_swiglu

        launch_swiglu(gate, up, out)
    return out


def _check(name: str, tensor: torch.Tensor, gate: torch.Tensor) -> None:
    if tensor.dim() != 2 or tensor.shape != gate.shape or tensor.device != gate.device:
        got = f"{list(tensor.shape)} on {tensor.device}"
        raise ValueError(f"{name} of swiglu: got {got}, want {list(gate.shape)} on {gate.device}")
    if tensor.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"{name} of swiglu: got {tensor.dtype}, want float32 or bfloat16")
    if tensor.shape[1] > 1 and tensor.stride(1) != 1:
        raise ValueError(f"{name} of swiglu: got stride {tensor.stride()}, want contiguous rows")
