"""Layer normalisation: checks, the choice of implementation, the launch."""

from __future__ import annotations

import torch

from ninfer_kernels.launch import TRITON, choose_backend
from ninfer_kernels.layernorm import reference

_TYPES = (torch.float32, torch.bfloat16)


def layernorm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    *,
    out: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Return (x - mean) / sqrt(var + eps) * weight + bias over the last dimension, type of `x`.

    x [..., C] bf16 or fp32, last dimension contiguous; weight and bias [C] bf16 or fp32. `out` is
    contiguous and may be `x`. Rule N-30. Raises ValueError for other shapes and types.
    """
    if x.dtype not in _TYPES or x.ndim < 1 or x.stride(-1) != 1:
        raise ValueError(
            f"x: got {_describe(x)}, want bf16 or fp32 with a contiguous last dimension"
        )
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector.shape != x.shape[-1:] or vector.dtype not in _TYPES:
            raise ValueError(f"{name}: got {_describe(vector)}, want [{x.shape[-1]}] bf16 or fp32")
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    elif out.shape != x.shape or out.dtype != x.dtype or not out.is_contiguous():
        raise ValueError(f"out: got {_describe(out)}, want {_describe(x)}, contiguous")
    if choose_backend(x, backend) == TRITON:
        from ninfer_kernels.layernorm import kernel

        kernel.launch(x, weight, bias, eps, out)
    else:
        out.copy_(reference.layernorm(x, weight, bias, eps))
    return out


def _describe(tensor: torch.Tensor) -> str:
    return f"{list(tensor.shape)} {tensor.dtype} on {tensor.device}"
