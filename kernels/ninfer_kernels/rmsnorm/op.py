"""RMS normalisation: checks, the choice of implementation, the launch."""

from __future__ import annotations

import torch

from ninfer_kernels.launch import TRITON, choose_backend
from ninfer_kernels.rmsnorm import reference

_TYPES = (torch.float32, torch.bfloat16)


def rmsnorm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    offset: bool,
    out: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Return x / sqrt(mean(x^2) + eps) * gain over the last dimension, in the type of `x`.

    x [..., C] bf16 or fp32, last dimension contiguous; weight [C] bf16 or fp32. The gain is
    1 + weight with `offset` (every text and MTP norm), weight without (drafters). `out` is
    contiguous, has the shape of `x` and may be `x` itself. Rules N-20 and N-21. Raises
    ValueError for other shapes and types.
    """
    _check(x, weight)
    out = _output("out", x, out)
    if choose_backend(x, backend) == TRITON:
        from ninfer_kernels.rmsnorm import kernel

        kernel.launch(_rows(x), None, weight, eps, offset, _rows(out), None)
    else:
        out.copy_(reference.rmsnorm(x, weight, eps, offset))
    return out


def add_rmsnorm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    offset: bool,
    out: torch.Tensor | None = None,
    sum_out: torch.Tensor | None = None,
    backend: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (rmsnorm(s), s) with s = x + residual rounded to the type of `x`.

    Shapes and types as in `rmsnorm`; `residual` is like `x`. `sum_out` may be `x` or `residual`,
    which keeps the residual stream in place; `out` must not share memory with `sum_out`.
    """
    _check(x, weight)
    if residual.shape != x.shape or residual.dtype != x.dtype or residual.stride(-1) != 1:
        raise ValueError(f"residual: got {_describe(residual)}, want {_describe(x)}, contiguous")
    out, sum_out = _output("out", x, out), _output("sum_out", x, sum_out)
    if choose_backend(x, backend) == TRITON:
        from ninfer_kernels.rmsnorm import kernel

        kernel.launch(_rows(x), _rows(residual), weight, eps, offset, _rows(out), _rows(sum_out))
    else:
        normal, total = reference.add_rmsnorm(x, residual, weight, eps, offset)
        out.copy_(normal)
        sum_out.copy_(total)
    return out, sum_out


def gated_rmsnorm(
    x: torch.Tensor,
    gate: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    out: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Return norm(x) * weight * silu(gate) per head: the output norm of Gated DeltaNet.

    x and gate [T, H, D] of one type, bf16 or fp32, D contiguous and T and H with any stride (a
    slice of a joined projection is fine); weight [D], plain, bf16 or fp32. `out` [T, H, D]
    contiguous, may be `x`. Rule N-22. Raises ValueError for other shapes and types.
    """
    _check(x, weight)
    if x.ndim != 3:
        raise ValueError(f"x: got {_describe(x)}, want [T, H, D]")
    if gate.shape != x.shape or gate.dtype != x.dtype or gate.stride(-1) != 1:
        raise ValueError(f"gate: got {_describe(gate)}, want {_describe(x)}, D contiguous")
    out = _output("out", x, out)
    if choose_backend(x, backend) == TRITON:
        from ninfer_kernels.rmsnorm import kernel

        kernel.launch_gated(x, gate, weight, eps, out)
    else:
        out.copy_(reference.gated_rmsnorm(x, gate, weight, eps))
    return out


def _check(x: torch.Tensor, weight: torch.Tensor) -> None:
    if x.dtype not in _TYPES or x.ndim < 1 or x.stride(-1) != 1:
        raise ValueError(
            f"x: got {_describe(x)}, want bf16 or fp32 with a contiguous last dimension"
        )
    if weight.shape != x.shape[-1:] or weight.dtype not in _TYPES or not weight.is_contiguous():
        raise ValueError(f"weight: got {_describe(weight)}, want [{x.shape[-1]}] bf16 or fp32")
    if weight.device != x.device:
        raise ValueError(f"weight: got device {weight.device}, want {x.device}")


def _output(name: str, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    if out is None:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.shape != x.shape or out.dtype != x.dtype or not out.is_contiguous():
        raise ValueError(f"{name}: got {_describe(out)}, want {_describe(x)}, contiguous")
    return out


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1, tensor.shape[-1])


def _describe(tensor: torch.Tensor) -> str:
    return f"{list(tensor.shape)} {tensor.dtype} on {tensor.device}"
