"""Products of activations with weight matrices of every numeric format."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ninfer_kernels.launch import REFERENCE, choose_backend
from ninfer_kernels.linear.matrix import BF16, FP32, Matrix
from ninfer_kernels.linear.plan import MAX_SKINNY, plan_skinny
from ninfer_kernels.linear.reference import linear_reference

# Bytes of a buffer the wide path allocates when it is given none.
_OWN_SCRATCH = 512 << 20


def linear(
    x: torch.Tensor,
    matrix: Matrix,
    bias: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    scratch: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Return y [T, N] with y[t, n] = sum_k x[t, k] * W[n, k] (+ bias[n]).

    x is [T, K] in float32 or bfloat16, its rows contiguous but possibly apart; bias is [N] of any
    float type; the result has `out_dtype` or x's. `out` [T, N] may be a range of columns of a
    wider tensor. `scratch` is a uint8 tensor of at least `scratch_bytes`; without one the Triton
    path allocates. Sums are float32 (rules N-8 to N-11). Raises ValueError for shapes, dtypes or
    devices that do not fit.
    """
    _check(x, matrix, bias)
    if out is None:
        out = torch.empty(x.shape[0], matrix.rows, dtype=out_dtype or x.dtype, device=x.device)
    _check_out(out, x, matrix, out_dtype)
    if x.shape[0] == 0:
        return out
    if choose_backend(x, backend) == REFERENCE:
        linear_reference(x, matrix, bias, out)
    elif x.shape[0] <= MAX_SKINNY:
        _skinny(x, matrix, bias, out, scratch)
    else:
        _wide(x, matrix, bias, out, scratch)
    return out


def linear_group(
    x: torch.Tensor,
    matrices: Sequence[Matrix],
    *,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    scratch: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Return [T, sum of rows]: the products of x with several matrices, side by side.

    The matrices share x's K and may have different formats; otherwise as `linear`.
    """
    total = sum(matrix.rows for matrix in matrices)
    if out is None:
        out = torch.empty(x.shape[0], total, dtype=out_dtype or x.dtype, device=x.device)
    if tuple(out.shape) != (x.shape[0], total):
        raise ValueError(f"out of a group: got {list(out.shape)}, want {[x.shape[0], total]}")
    begin = 0
    for matrix in matrices:
        part = out[:, begin : begin + matrix.rows]
        linear(x, matrix, out=part, out_dtype=out_dtype, scratch=scratch, backend=backend)
        begin += matrix.rows
    return out


def scratch_bytes(tokens: int, matrix: Matrix, dtype: torch.dtype) -> int:
    """Return the bytes of scratch `linear` needs for up to `tokens` rows of x in `dtype`.

    For more than 16 rows any multiple of one decoded row will do; this is the whole matrix, up
    to 512 MiB.
    """
    plan = plan_skinny(matrix.rows, matrix.columns)
    rows = min(tokens, MAX_SKINNY)
    needed = plan.splits * rows * matrix.rows * 4 if plan.splits > 1 else 0
    if tokens > MAX_SKINNY and not _is_direct(matrix, dtype):
        row_bytes = matrix.columns * _product_dtype(matrix, dtype).itemsize
        whole = matrix.rows * row_bytes
        needed = max(needed, min(whole, max(row_bytes, _OWN_SCRATCH // row_bytes * row_bytes)))
    return needed


def _skinny(
    x: torch.Tensor,
    matrix: Matrix,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    scratch: torch.Tensor | None,
) -> None:
    from ninfer_kernels.linear.kernel import launch_skinny

    needed = scratch_bytes(x.shape[0], matrix, x.dtype)
    parts = _typed(scratch, needed, torch.float32, x.device) if needed else None
    launch_skinny(x, matrix, bias, out, parts)


def _wide(
    x: torch.Tensor,
    matrix: Matrix,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    scratch: torch.Tensor | None,
) -> None:
    """Decode row blocks into scratch, in the type of the product, and multiply there."""
    from ninfer_kernels.linear.kernel import launch_decode

    dtype = _product_dtype(matrix, x.dtype)
    x = x.to(dtype)
    if _is_direct(matrix, dtype):
        _multiply(x, matrix.planes["values"], bias, out)
        return
    columns = matrix.columns
    given = scratch.numel() if scratch is not None else scratch_bytes(x.shape[0], matrix, dtype)
    step = min(matrix.rows, given // (columns * dtype.itemsize))
    if step < 1:
        raise ValueError(f"scratch: got {given} bytes, want at least {columns * dtype.itemsize}")
    values = _typed(scratch, step * columns * dtype.itemsize, dtype, x.device)
    for begin in range(0, matrix.rows, step):
        end = min(matrix.rows, begin + step)
        block = values[: (end - begin) * columns].view(end - begin, columns)
        launch_decode(matrix.cut_rows(begin, end), block)
        _multiply(x, block, None if bias is None else bias[begin:end], out[:, begin:end])


def _multiply(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor
) -> None:
    # torch.mm rounds to x's type; a wider result or a bias needs the float32 sums.
    if bias is None and out.dtype == x.dtype:
        torch.mm(x, weight.T, out=out)
        return
    product = _mm_float32(x, weight)
    if bias is not None:
        product += bias.float()
    out.copy_(product)


def _mm_float32(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if x.dtype == torch.float32:
        return torch.mm(x, weight.T)
    if x.is_cuda:
        return torch.mm(x, weight.T, out_dtype=torch.float32)
    return torch.mm(x.float(), weight.T.float())


def _product_dtype(matrix: Matrix, dtype: torch.dtype) -> torch.dtype:
    # float32 weights are few and small, and chosen for their precision.
    return torch.float32 if matrix.format == FP32 else dtype


def _is_direct(matrix: Matrix, dtype: torch.dtype) -> bool:
    return matrix.format == FP32 or (matrix.format == BF16 and dtype == torch.bfloat16)


def _typed(
    scratch: torch.Tensor | None, needed: int, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    if scratch is None:
        scratch = torch.empty(needed, dtype=torch.uint8, device=device)
    if scratch.dtype != torch.uint8 or scratch.numel() < needed or scratch.dim() != 1:
        got = f"{list(scratch.shape)} {scratch.dtype}"
        raise ValueError(f"scratch: got {got}, want at least [{needed}] torch.uint8")
    return scratch[:needed].view(dtype)


def _check(x: torch.Tensor, matrix: Matrix, bias: torch.Tensor | None) -> None:
    if x.dim() != 2 or x.shape[1] != matrix.columns:
        raise ValueError(f"x of linear: got {list(x.shape)}, want [T, {matrix.columns}]")
    if x.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"x of linear: got {x.dtype}, want float32 or bfloat16")
    if x.stride(1) != 1 and x.shape[1] > 1:
        raise ValueError(f"x of linear: got stride {x.stride()}, want contiguous rows")
    if x.device != matrix.device:
        raise ValueError(f"x of linear is on {x.device}, the matrix on {matrix.device}")
    if bias is not None and (tuple(bias.shape) != (matrix.rows,) or bias.device != x.device):
        got = f"{list(bias.shape)} on {bias.device}"
        raise ValueError(f"bias of linear: got {got}, want [{matrix.rows}] on {x.device}")


def _check_out(
    out: torch.Tensor, x: torch.Tensor, matrix: Matrix, dtype: torch.dtype | None
) -> None:
    want = (x.shape[0], matrix.rows)
    if tuple(out.shape) != want or (dtype is not None and out.dtype != dtype):
        got = f"{list(out.shape)} {out.dtype}"
        raise ValueError(f"out of linear: got {got}, want {list(want)} {dtype or ''}".rstrip())
    if out.device != x.device or (out.stride(1) != 1 and out.shape[1] > 1):
        raise ValueError(f"out of linear: got stride {out.stride()} on {out.device}")
