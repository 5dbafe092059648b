"""Triton kernels of `linear`: skinny products, their split sums, and decoding into a buffer."""

# Triton's types are not Python's: a constexpr parameter takes a number, launches take options.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAssignmentType=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation
from ninfer_kernels.launch import ceil_div
from ninfer_kernels.linear.matrix import BF16, FORMATS, FP8, FP32, NVFP4, Q4, Q5, Q6, Q8, Matrix
from ninfer_kernels.linear.plan import BLOCK_ROWS, MAX_SKINNY, STEP_K, plan_skinny
from ninfer_kernels.linear.tile import (
    FORMAT_IDS,
    TILE_K,
    decode_tile,
    dot_step,
    plane_pointers,
    plane_signature,
    row_step,
    scale_rows,
)
from ninfer_kernels.tuning import Place, Tuning, find_tuning

_REDUCE_COLUMNS = 1024
_DECODE_ROWS = 16
_NUM_WARPS = 4
_NUM_STAGES = 3

# Left alone, ptxas trades a few spills of these for more resident programs on some cards.
_MAX_REGISTERS = {FP32: 128, Q5: 128, Q6: 128}

# Skinny products by (format, rows, columns) of the matrix; scripts/tune_linear.py finds them.
# Two warps of matrix units read the wide formats 1.1 to 2 times as fast as a warp group.
TUNED: dict[Place, Tuning] = {
    Place(90, (Q5,)): Tuning(num_warps=2, num_stages=3, max_registers=168),
    Place(90, (Q6,)): Tuning(num_warps=2, num_stages=3, max_registers=168),
    Place(90, (Q8,)): Tuning(num_warps=2, num_stages=2),
    Place(90, (FP8, 14336, 5120)): Tuning(num_warps=2, num_stages=3),
    Place(90, (FP8, 248320, 5120)): Tuning(num_warps=2, num_stages=4),
    Place(90, (FP8, 248320, 2048)): Tuning(num_warps=2, num_stages=2),
    Place(90, (BF16, 14336, 5120)): Tuning(num_warps=2, num_stages=3),
}


def default_tuning(format: str) -> Tuning:
    """Return how a skinny product of this format is launched where nothing was measured."""
    return Tuning(_NUM_WARPS, _NUM_STAGES, _MAX_REGISTERS.get(format))


@triton.jit(do_not_specialize=["T"])
def linear_skinny(
    x_ptr, w_ptr, h_ptr, s_ptr, bias_ptr, y_ptr, part_ptr,
    T, N, K, x_stride, y_stride, split_k,
    FORMAT: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr,
    STEP: tl.constexpr, EVEN: tl.constexpr, SPLIT: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """y[t, n] = sum_k x[t, k] * W[n, k] (+ bias[n]) for t < T.

    Weights lie on the rows of the tile, x on its BT columns: bfloat16 x all T <= BT rows at once,
    and with BT = 1 one row of x per program of the third axis, in float32 arithmetic. With SPLIT,
    sums of a range of K go to part_ptr [splits, T, N] instead, and `linear_reduce` finishes.
    """
    i_n, i_s = tl.program_id(0), tl.program_id(1)
    o_n = i_n * BN + tl.arange(0, BN)
    o_t = tl.program_id(2) + tl.arange(0, BT)
    # Rows past the end read the last row: cheaper than a mask on every load.
    o_w = tl.minimum(o_n, N - 1).to(tl.int64)
    k_begin = i_s * split_k
    k_end = tl.minimum(k_begin + split_k, K)
    if BT == 1:
        p_row = x_ptr + tl.program_id(2).to(tl.int64) * x_stride
        b_row = tl.zeros((BN, BK), tl.float32)
        for k in range(k_begin, k_end, STEP):
            b_row = row_step(b_row, p_row, w_ptr, h_ptr, s_ptr, o_w, k, K, FORMAT, BK, STEP, EVEN)
        b_acc = tl.sum(b_row, axis=1)[:, None]
    else:
        p_x = x_ptr + o_t.to(tl.int64) * x_stride
        b_acc = tl.zeros((BN, BT), tl.float32)
        for k in range(k_begin, k_end, STEP):
            b_acc = dot_step(
                b_acc, p_x, o_t < T, w_ptr, h_ptr, s_ptr, o_w, k, K, FORMAT, BK, STEP, EVEN
            )
    b_acc = scale_rows(b_acc, s_ptr, o_w, FORMAT)
    m_y = (o_n < N)[:, None] & (o_t < T)[None, :]
    if SPLIT:
        p_part = part_ptr + (i_s * T + o_t)[None, :].to(tl.int64) * N + o_n[:, None]
        tl.store(p_part, b_acc, mask=m_y)
    else:
        if BIAS:
            b_acc += tl.load(bias_ptr + o_w).to(tl.float32)[:, None]
        p_y = y_ptr + o_t[None, :].to(tl.int64) * y_stride + o_n[:, None]
        tl.store(p_y, b_acc.to(y_ptr.dtype.element_ty), mask=m_y)


@triton.jit(do_not_specialize=["T", "splits"])
def linear_reduce(
    part_ptr, bias_ptr, y_ptr, T, N, y_stride, splits, BN: tl.constexpr, BIAS: tl.constexpr
):
    """y[t, n] = sum_s part[s, t, n] (+ bias[n]), s in ascending order."""
    i_n, i_t = tl.program_id(0), tl.program_id(1)
    o_n = i_n * BN + tl.arange(0, BN)
    m_n = o_n < N
    b_sum = tl.zeros((BN,), tl.float32)
    for i_s in range(splits):
        p_part = part_ptr + (i_s * T + i_t).to(tl.int64) * N + o_n
        b_sum += tl.load(p_part, mask=m_n, other=0.0)
    if BIAS:
        b_sum += tl.load(bias_ptr + o_n, mask=m_n, other=0.0).to(tl.float32)
    p_y = y_ptr + i_t.to(tl.int64) * y_stride + o_n
    tl.store(p_y, b_sum.to(y_ptr.dtype.element_ty), mask=m_n)


@triton.jit
def decode_rows(
    w_ptr, h_ptr, s_ptr, o_ptr, N, K,
    FORMAT: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """o[n, k] = W[n, k], rounded once to the type of o."""
    i_n, i_k = tl.program_id(0), tl.program_id(1)
    o_n = i_n * BN + tl.arange(0, BN)
    o_w = tl.minimum(o_n, N - 1).to(tl.int64)
    o_k = i_k * BK + tl.arange(0, BK)
    b_values = decode_tile(w_ptr, h_ptr, s_ptr, o_w, i_k * BK, K, FORMAT, BK, EVEN)
    m_o = (o_n < N)[:, None] & (o_k < K)[None, :]
    tl.store(o_ptr + o_w[:, None] * K + o_k[None, :], b_values.to(o_ptr.dtype.element_ty), mask=m_o)


def launch_skinny(
    x: torch.Tensor,
    matrix: Matrix,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    scratch: torch.Tensor | None,
    tuning: Tuning | None = None,
) -> None:
    """Write x [T <= 16, K] times `matrix` (+ bias) to out [T, N]; `scratch` float32 as planned.

    `tuning` None takes that of TUNED or the default.
    """
    plan = plan_skinny(matrix.rows, matrix.columns)
    w, h, s = plane_pointers(matrix)
    split = plan.splits > 1
    parts = scratch if scratch is not None else out
    added = bias if bias is not None else out
    # One tile for any number of bfloat16 rows; float32 rows one by one.
    single = x.dtype == torch.float32 or matrix.format == FP32
    if tuning is None:
        tuning = default_tuning(matrix.format)
        if not single:
            shape = (matrix.format, matrix.rows, matrix.columns)
            tuning = find_tuning(TUNED, x.device, shape, tuning)
    linear_skinny[(plan.blocks, plan.splits, x.shape[0] if single else 1)](
        x, w, h, s, added, out, parts,
        x.shape[0], matrix.rows, matrix.columns, x.stride(0), out.stride(0), plan.split_k,
        FORMAT=FORMAT_IDS[matrix.format], BN=BLOCK_ROWS,
        BT=1 if single else MAX_SKINNY, BK=TILE_K[matrix.format], STEP=STEP_K,
        EVEN=matrix.columns % STEP_K == 0, SPLIT=split, BIAS=bias is not None and not split,
        num_warps=tuning.num_warps, num_stages=tuning.num_stages, maxnreg=tuning.max_registers,
    )  # fmt: skip
    if split:
        grid = (ceil_div(matrix.rows, _REDUCE_COLUMNS), x.shape[0])
        linear_reduce[grid](
            parts, added, out, x.shape[0], matrix.rows, out.stride(0), plan.splits,
            BN=_REDUCE_COLUMNS, BIAS=bias is not None,
        )  # fmt: skip


def launch_decode(matrix: Matrix, out: torch.Tensor) -> None:
    """Write the values of `matrix` to out [N, K], contiguous."""
    w, h, s = plane_pointers(matrix)
    tile = TILE_K[matrix.format]
    grid = (ceil_div(matrix.rows, _DECODE_ROWS), ceil_div(matrix.columns, tile))
    decode_rows[grid](
        w, h, s, out, matrix.rows, matrix.columns, FORMAT=FORMAT_IDS[matrix.format],
        BN=_DECODE_ROWS, BK=tile, EVEN=matrix.columns % tile == 0,
    )  # fmt: skip


def _skinny_compilation(
    format: str, split: bool, dtype: str = "bf16", tuning: Tuning | None = None
) -> Compilation:
    tuning = tuning or default_tuning(format)
    whole = ("T", "N", "K", "x_stride", "y_stride", "split_k")
    signature = {
        "x_ptr": f"*{dtype}",
        **plane_signature(format),
        "bias_ptr": "*bf16",
        "y_ptr": f"*{dtype}",
        "part_ptr": "*fp32" if split else f"*{dtype}",
        **dict.fromkeys(whole, "i32"),
    }
    constants = {
        "FORMAT": FORMAT_IDS[format], "BN": BLOCK_ROWS,
        "BT": 1 if FP32 in (dtype, format) else MAX_SKINNY, "BK": TILE_K[format],
        "STEP": STEP_K, "EVEN": True, "SPLIT": split, "BIAS": False,
    }  # fmt: skip
    return Compilation(
        name=f"linear_skinny {format} {dtype}{' split' if split else ''}",
        kernel=linear_skinny,
        signature=signature,
        constants=constants,
        divisible=tuple(name for name in signature if name != "T"),
        num_warps=tuning.num_warps,
        num_stages=tuning.num_stages,
        max_registers=tuning.max_registers or 128,
        options={"maxnreg": tuning.max_registers} if tuning.max_registers else {},
    )


def _tuned_compilations(place: Place, tuning: Tuning) -> Iterator[Compilation]:
    """Yield the entry as it is launched: split, whole, or, for any shape, both."""
    format, *sizes = place.shape
    splits = {plan_skinny(*sizes).splits > 1} if sizes else {False, True}
    for split in sorted(splits):
        base = _skinny_compilation(format, split, tuning=tuning)
        name = " ".join([base.name, "x".join(map(str, sizes)), "tuned"]).replace("  ", " ")
        yield replace(base, name=name, architectures=(place.architecture,), tuned=True)


def _decode_compilation(format: str) -> Compilation:
    signature = {**plane_signature(format), "o_ptr": "*bf16", "N": "i32", "K": "i32"}
    constants = {
        "FORMAT": FORMAT_IDS[format], "BN": _DECODE_ROWS, "BK": TILE_K[format], "EVEN": True,
    }  # fmt: skip
    return Compilation(
        f"decode_rows {format}", decode_rows, signature, constants, divisible=tuple(signature)
    )


COMPILATIONS: tuple[Compilation, ...] = (
    *(_skinny_compilation(format, split) for format in FORMATS for split in (False, True)),
    _skinny_compilation(Q4, split=False, dtype="fp32"),
    _skinny_compilation(NVFP4, split=False, dtype="fp32"),
    Compilation(
        "linear_reduce",
        linear_reduce,
        {
            "part_ptr": "*fp32", "bias_ptr": "*bf16", "y_ptr": "*bf16",
            **dict.fromkeys(("T", "N", "y_stride", "splits"), "i32"),
        },
        {"BN": _REDUCE_COLUMNS, "BIAS": False},
        divisible=("part_ptr", "bias_ptr", "y_ptr", "N", "y_stride"),
    ),
    *(_decode_compilation(format) for format in FORMATS if format != BF16),
    *(c for place, tuning in TUNED.items() for c in _tuned_compilations(place, tuning)),
)  # fmt: skip
