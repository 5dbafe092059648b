"""Vision attention: checks, the choice of implementation, the launch."""

from __future__ import annotations

import torch

from ninfer_kernels.launch import TRITON, choose_backend
from ninfer_kernels.vision_attention import reference


def vision_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    boundaries: torch.Tensor,
    scale: float,
    *,
    longest: int,
    out: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Return softmax(scale q k) v [T, H, D] with each patch seeing its own frame only.

    q, k, v [T, H, D], all bf16 or all fp32, D contiguous and any stride along T and H (parts of a
    fused projection are fine); boundaries int32 [F + 1] on the same device, ascending from 0 to
    T: frame f is rows boundaries[f]..boundaries[f + 1]. `longest` is the number of patches of the
    longest frame, which the host knows from the grids. `out` is contiguous. Rule N-32. Raises
    ValueError for other shapes and types.
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        typed = tensor.dtype == q.dtype and q.dtype in (torch.float32, torch.bfloat16)
        if tensor.ndim != 3 or tensor.shape != q.shape or not typed or tensor.stride(-1) != 1:
            got = f"{list(tensor.shape)} {tensor.dtype}"
            want = f"[T, H, D] = {list(q.shape)} bf16 or fp32, D contiguous"
            raise ValueError(f"{name}: got {got}, want {want}")
    if boundaries.ndim != 1 or boundaries.shape[0] < 2 or boundaries.dtype != torch.int32:
        got = f"{list(boundaries.shape)} {boundaries.dtype}"
        raise ValueError(f"boundaries: got {got}, want [F + 1] int32")
    if not 0 < longest <= q.shape[0]:
        raise ValueError(f"longest frame: got {longest}, want 1 to {q.shape[0]} patches")
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    elif out.shape != q.shape or out.dtype != q.dtype or not out.is_contiguous():
        raise ValueError(f"out: got {list(out.shape)} {out.dtype}, want {list(q.shape)} contiguous")
    if choose_backend(q, backend) == TRITON:
        from ninfer_kernels.vision_attention import kernel

        kernel.launch(q, k, v, boundaries, scale, longest, out)
    else:
        out.copy_(reference.vision_attention(q, k, v, boundaries, scale))
    return out
