"""Gated delta rule in Triton: rounds with replay records. One program owns BV rows of a head.

Every loop over columns or records has a length known on the device only, so a column is computed
by the same instructions whatever the width of the round: replay equals sequential decoding.
"""

# Triton rewrites jit bodies and their calls; a type checker cannot follow.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAssignmentType=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation
from ninfer_kernels.gated_delta.records import ReplayRecords

ROWS = 32


@triton.jit
def softplus(x):
    """log(1 + exp(x)), relatively precise for very negative x, where fast logarithms are not."""
    b_e = tl.exp(-tl.abs(x))
    b_series = b_e * (1.0 - b_e * (0.5 - b_e * (0.33333334 - b_e * (0.25 - b_e * 0.2))))
    return tl.maximum(x, 0.0) + tl.where(b_e < 0.03125, b_series, tl.log(1.0 + b_e))


@triton.jit
def advance(b_s, b_u, b_k, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """S + u k^T; written out as fma so that every caller rounds alike."""
    b_left = tl.broadcast_to(b_u[:, None], (ROWS, WIDTH))
    b_right = tl.broadcast_to(b_k[None, :], (ROWS, WIDTH))
    return tl.fma(b_left, b_right, b_s)


@triton.jit
def fold(
    b_s,
    key_ptr,
    update_ptr,
    decay_ptr,
    i_s,
    i_h,
    o_v,
    o_k,
    first,
    count,
    R,
    NK,
    NV,
    DV: tl.constexpr,
    DK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Apply the records of positions first .. first + count - 1 to b_s, oldest first.

    b_s [ROWS, WIDTH]: rows o_v and columns o_k of the head's state.
    """
    i_first = i_s * R
    i_place = first % R
    for _ in range(count):
        i_r = i_first + i_place
        i_place = tl.where(i_place + 1 == R, 0, i_place + 1)
        b_decay = tl.load(decay_ptr + i_r * NV + i_h)
        b_k = tl.load(key_ptr + (i_r * NK + i_h // (NV // NK)) * DK + o_k)
        b_u = tl.load(update_ptr + (i_r * NV + i_h) * DV + o_v)
        b_s = advance(b_s * b_decay, b_u, b_k, ROWS, WIDTH)
    return b_s


@triton.jit
def round_kernel(
    mixed_ptr,
    a_ptr,
    b_ptr,
    a_log_ptr,
    dt_bias_ptr,
    state_ptr,
    key_ptr,
    update_ptr,
    decay_ptr,
    slots_ptr,
    columns_ptr,
    base_ptr,
    accepted_ptr,
    settled_ptr,
    out_ptr,
    W,
    R,
    NK,
    NV,
    stride_lane,
    stride_column,
    a_stride_lane,
    a_stride_column,
    b_stride_lane,
    b_stride_column,
    eps,
    scale,
    DV: tl.constexpr,
    DK: tl.constexpr,
    ROWS: tl.constexpr,
):
    i_h = tl.program_id(0) // (DV // ROWS)
    i_v = tl.program_id(0) % (DV // ROWS)
    i_l = tl.program_id(1)
    i_lane = i_l.to(tl.int64)
    i_kh = i_h // (NV // NK)
    o_v = i_v * ROWS + tl.arange(0, ROWS)
    o_k = tl.arange(0, DK)
    n_columns = tl.load(columns_ptr + i_l)
    p_out = out_ptr + (i_lane * W * NV + i_h) * DV + o_v
    if n_columns > 0:
        i_s = tl.load(slots_ptr + i_l).to(tl.int64)
        base = tl.load(base_ptr + i_l)
        n_settled = tl.load(settled_ptr + i_s)
        n_last = tl.load(accepted_ptr + i_s) - n_settled
        p_s = state_ptr + ((i_s * NV + i_h) * DV + o_v[:, None]) * DK + o_k[None, :]
        b_s = tl.load(p_s)
        b_rate = tl.exp(tl.load(a_log_ptr + i_h).to(tl.float32))
        b_bias = tl.load(dt_bias_ptr + i_h).to(tl.float32)
        b_s = fold(
            b_s, key_ptr, update_ptr, decay_ptr, i_s, i_h, o_v, o_k,
            base - n_last - n_settled, n_settled, R, NK, NV, DV, DK, ROWS, DK,
        )  # fmt: skip
        if n_settled > 0:
            tl.store(p_s, b_s)
        # The last round may yet be taken back: its records reach registers only.
        b_s = fold(
            b_s, key_ptr, update_ptr, decay_ptr, i_s, i_h, o_v, o_k, base - n_last, n_last,
            R, NK, NV, DV, DK, ROWS, DK,
        )  # fmt: skip
        p_q = mixed_ptr + i_lane * stride_lane + i_kh * DK + o_k
        p_v = mixed_ptr + i_lane * stride_lane + 2 * NK * DK + i_h * DV + o_v
        for i in range(n_columns):
            b_q = tl.load(p_q + i * stride_column).to(tl.float32)
            b_k = tl.load(p_q + NK * DK + i * stride_column).to(tl.float32)
            b_v = tl.load(p_v + i * stride_column).to(tl.float32)
            b_a = tl.load(a_ptr + i_lane * a_stride_lane + i * a_stride_column + i_h)
            b_b = tl.load(b_ptr + i_lane * b_stride_lane + i * b_stride_column + i_h)
            b_q = b_q * (tl.rsqrt(tl.sum(b_q * b_q, 0) + eps) * scale)
            b_k = b_k * tl.rsqrt(tl.sum(b_k * b_k, 0) + eps)
            b_decay = tl.exp(-b_rate * softplus(b_a.to(tl.float32) + b_bias))
            b_beta = 1.0 / (1.0 + tl.exp(-b_b.to(tl.float32)))
            b_s = b_s * b_decay
            b_u = b_beta * (b_v - tl.sum(b_s * b_k[None, :], 1))
            b_s = advance(b_s, b_u, b_k, ROWS, DK)
            b_o = tl.sum(b_s * b_q[None, :], 1)
            tl.store(p_out + i * NV * DV, b_o.to(out_ptr.dtype.element_ty))
            # The ring keeps these apart from the records that other programs still fold.
            i_r = i_s * R + (base + i) % R
            tl.store(update_ptr + (i_r * NV + i_h) * DV + o_v, b_u)
            if i_v == 0:
                tl.store(decay_ptr + i_r * NV + i_h, b_decay)
                if i_h % (NV // NK) == 0:
                    tl.store(key_ptr + (i_r * NK + i_kh) * DK + o_k, b_k)
    for i in range(n_columns, W):
        tl.store(p_out + i * NV * DV, tl.zeros((ROWS,), out_ptr.dtype.element_ty))


@triton.jit
def fold_kernel(
    state_ptr,
    key_ptr,
    update_ptr,
    decay_ptr,
    slots_ptr,
    base_ptr,
    accepted_ptr,
    R,
    NK,
    NV,
    DV: tl.constexpr,
    DK: tl.constexpr,
    ROWS: tl.constexpr,
):
    i_h = tl.program_id(0) // (DV // ROWS)
    o_v = (tl.program_id(0) % (DV // ROWS)) * ROWS + tl.arange(0, ROWS)
    o_k = tl.arange(0, DK)
    i_l = tl.program_id(1)
    i_s = tl.load(slots_ptr + i_l).to(tl.int64)
    if i_s >= 0:
        base = tl.load(base_ptr + i_l)
        n_accepted = tl.load(accepted_ptr + i_s)
        p_s = state_ptr + ((i_s * NV + i_h) * DV + o_v[:, None]) * DK + o_k[None, :]
        b_s = tl.load(p_s)
        b_s = fold(
            b_s, key_ptr, update_ptr, decay_ptr, i_s, i_h, o_v, o_k, base - n_accepted,
            n_accepted, R, NK, NV, DV, DK, ROWS, DK,
        )  # fmt: skip
        tl.store(p_s, b_s)


def launch_round(
    mixed: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    state: torch.Tensor,
    records: ReplayRecords,
    slots: torch.Tensor,
    columns: torch.Tensor,
    base: torch.Tensor,
    accepted: torch.Tensor,
    settled: torch.Tensor,
    eps: float,
    out: torch.Tensor,
) -> torch.Tensor:
    lanes, width = mixed.shape[:2]
    value_heads, value_dim, key_dim = state.shape[1:]
    rows = min(ROWS, value_dim)
    round_kernel[(value_heads * (value_dim // rows), lanes)](
        mixed,
        a,
        b,
        a_log,
        dt_bias,
        state,
        records.key,
        records.update,
        records.decay,
        slots,
        columns,
        base,
        accepted,
        settled,
        out,
        width,
        records.length,
        records.key.shape[2],
        value_heads,
        mixed.stride(0),
        mixed.stride(1),
        a.stride(0),
        a.stride(1),
        b.stride(0),
        b.stride(1),
        eps,
        key_dim**-0.5,
        DV=value_dim,
        DK=key_dim,
        ROWS=rows,
        num_warps=4,
    )
    return out


def launch_fold(
    state: torch.Tensor,
    records: ReplayRecords,
    slots: torch.Tensor,
    base: torch.Tensor,
    accepted: torch.Tensor,
) -> None:
    value_heads, value_dim, key_dim = state.shape[1:]
    rows = min(ROWS, value_dim)
    fold_kernel[(value_heads * (value_dim // rows), slots.numel())](
        state,
        records.key,
        records.update,
        records.decay,
        slots,
        base,
        accepted,
        records.length,
        records.key.shape[2],
        value_heads,
        DV=value_dim,
        DK=key_dim,
        ROWS=rows,
        num_warps=4,
    )


_FLOATS = ("a_log_ptr", "dt_bias_ptr", "state_ptr", "key_ptr", "update_ptr", "decay_ptr")
_DATA = ("mixed_ptr", "a_ptr", "b_ptr", "out_ptr")


def _argument_type(argument: str, dtype: str) -> str:
    if argument in _FLOATS:
        return "*fp32"
    if argument in _DATA:
        return f"*{dtype}"
    if argument.endswith("_ptr"):
        return "*i32"
    return "fp32" if argument in ("eps", "scale") else "i32"


def _compile(name: str, kernel: Any, dtype: str) -> Compilation:
    constants = {"DV": 128, "DK": 128, "ROWS": ROWS}
    signature = {
        argument: _argument_type(argument, dtype)
        for argument in kernel.arg_names
        if argument not in constants
    }
    aligned = ("stride_lane", "stride_column")
    return Compilation(
        name=f"gated_delta_{name}_{dtype}",
        kernel=kernel,
        signature=signature,
        constants=constants,
        divisible=tuple(a for a in signature if a.endswith("_ptr") or a in aligned),
        num_warps=4,
        max_registers=128,
    )


COMPILATIONS = (
    _compile("round", round_kernel, "bf16"),
    _compile("round", round_kernel, "fp32"),
    _compile("fold", fold_kernel, "fp32"),
)
