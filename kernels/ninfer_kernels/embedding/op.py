"""Rows of the token table in any numeric format."""

from __future__ import annotations

import torch

from ninfer_kernels.embedding.reference import embedding_reference
from ninfer_kernels.launch import REFERENCE, choose_backend
from ninfer_kernels.linear.matrix import FP32, Matrix


def embedding(
    ids: torch.Tensor,
    matrix: Matrix,
    *,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Return [T, K]: row ids[t] of `matrix` for each t, decoded and rounded once (rule N-12).

    ids is [T] in int32 or int64. The result has `out_dtype`, by default float32 for a float32
    matrix and else bfloat16. Ids MUST be in 0..N-1: the reference raises IndexError for others;
    the kernel cannot without waiting for the device and takes the nearest row, so callers check
    ids before they reach the device. Raises ValueError for shapes, dtypes, devices that do not fit.
    """
    if ids.dim() != 1 or ids.dtype not in (torch.int32, torch.int64):
        got = f"{list(ids.shape)} {ids.dtype}"
        raise ValueError(f"ids of embedding: got {got}, want [T] int32 or int64")
    if ids.device != matrix.device:
        raise ValueError(f"ids of embedding are on {ids.device}, the matrix on {matrix.device}")
    if out is None:
        dtype = out_dtype or (torch.float32 if matrix.format == FP32 else torch.bfloat16)
        out = torch.empty(ids.shape[0], matrix.columns, dtype=dtype, device=ids.device)
    want = (ids.shape[0], matrix.columns)
    if tuple(out.shape) != want or (out_dtype is not None and out.dtype != out_dtype):
        raise ValueError(f"out of embedding: got {list(out.shape)} {out.dtype}, want {list(want)}")
    if out.device != ids.device or out.stride(-1) != 1:
        raise ValueError(f"out of embedding: got stride {out.stride()} on {out.device}")
    if ids.shape[0] == 0:
        return out
    if choose_backend(ids, backend) == REFERENCE:
        embedding_reference(ids, matrix, out)
    else:
        from ninfer_kernels.embedding.kernel import launch_embedding

        launch_embedding(ids, matrix, out)
    return out
