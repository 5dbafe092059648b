"""Paged attention: checks, the choice of implementation, the launch."""

from __future__ import annotations

import torch

from ninfer_kernels.kv_codec.op import check_lanes
from ninfer_kernels.kv_codec.pages import KVPages
from ninfer_kernels.launch import TRITON, choose_backend
from ninfer_kernels.paged_attention import reference

_TYPES = (torch.float32, torch.bfloat16)


def paged_attention(
    q: torch.Tensor,
    cache: KVPages,
    block_table: torch.Tensor,
    base: torch.Tensor,
    columns: torch.Tensor,
    scale: float,
    *,
    out: torch.Tensor | None = None,
    workspace: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Return softmax(scale q k) v [L, W, Hq, D] in the type of `q`; head h reads h // (Hq/Hkv).

    q [L, W, Hq, D] bf16 or fp32, D contiguous, other strides free; `cache` holds the round's own
    keys already (append_kv first); block_table int32 [L, max_pages]; base and columns int32 [L].
    Column w sits at token base[l] + w and sees tokens 0..base[l] + w; the lane's pages must own
    them all. Columns at and past columns[l] are zero. Hq is any multiple of the cache's heads.
    `out` is contiguous; `workspace` fp32, at least `plan_attention(...).workspace` numbers, is
    made anew when missing. Lengths are read on the device only. Rules N-27 and N-28. Raises
    ValueError for other shapes and types.
    """
    _check(q, cache)
    check_lanes(q.shape[0], block_table, base, columns)
    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    elif out.shape != q.shape or out.dtype != q.dtype or not out.is_contiguous():
        raise ValueError(f"out: got {_describe(out)}, want {_describe(q)}, contiguous")
    if choose_backend(q, backend) == TRITON:
        from ninfer_kernels.paged_attention import kernel

        kernel.launch(q, cache, block_table, base, columns, scale, out, workspace)
    else:
        out.copy_(reference.paged_attention(q, cache, block_table, base, columns, scale))
    return out


def _check(q: torch.Tensor, cache: KVPages) -> None:
    if q.ndim != 4 or q.dtype not in _TYPES or q.stride(-1) != 1:
        raise ValueError(f"q: got {_describe(q)}, want [L, W, Hq, D] bf16 or fp32, D contiguous")
    _, kv_heads, _, size = cache.keys.shape
    if q.shape[3] != size or q.shape[2] % kv_heads:
        want = f"a multiple of {kv_heads} heads of {size}"
        raise ValueError(f"q: got {q.shape[2]} heads of {q.shape[3]}, want {want}")
    if cache.kind == "fp32" and q.dtype != torch.float32:
        raise ValueError(f"q: got {q.dtype} against an fp32 cache, want fp32")
    if q.device != cache.keys.device:
        raise ValueError(f"q: got device {q.device}, want that of the cache, {cache.keys.device}")


def _describe(tensor: torch.Tensor) -> str:
    return f"{list(tensor.shape)} {tensor.dtype} on {tensor.device}"
