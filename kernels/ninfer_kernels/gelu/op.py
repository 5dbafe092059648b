"""GELU: checks, the choice of implementation, the launch."""

from __future__ import annotations

import torch

from ninfer_kernels.gelu import reference
from ninfer_kernels.launch import TRITON, choose_backend

GELU_KINDS = ("tanh", "erf")


def gelu(
    x: torch.Tensor,
    kind: str,
    *,
    out: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Return GELU of `x` in its type; `kind` is "tanh" (vision blocks) or "erf" (the merger).

    x bf16 or fp32, contiguous, any shape; `out` likewise and may be `x`. Rule N-31. Raises
    ValueError for another kind, type or layout.
    """
    if kind not in GELU_KINDS:
        raise ValueError(f"GELU kind: got {kind}, want {' or '.join(GELU_KINDS)}")
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    for name, tensor in (("x", x), ("out", out)):
        typed = tensor.dtype == x.dtype and x.dtype in (torch.float32, torch.bfloat16)
        if tensor.shape != x.shape or not typed or not tensor.is_contiguous():
            got = f"{list(tensor.shape)} {tensor.dtype}"
            raise ValueError(f"{name}: got {got}, want {list(x.shape)} bf16 or fp32, contiguous")
    if choose_backend(x, backend) == TRITON:
        from ninfer_kernels.gelu import kernel

        kernel.launch(x, kind, out)
    else:
        out.copy_(reference.gelu(x, kind))
    return out
