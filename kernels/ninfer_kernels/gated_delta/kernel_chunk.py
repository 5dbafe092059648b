"""Gated delta rule over many columns in Triton; the formulas are those of `reference_chunk`.

`solve_kernel` works on all chunks at once: one program per chunk and value head leaves what does
not depend on the state. `scan_kernel` then walks the chunks, one program per block of state rows.
"""

# Triton rewrites jit bodies and their calls; a type checker cannot follow.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAssignmentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation
from ninfer_kernels.gated_delta.kernel import fold, softplus
from ninfer_kernels.gated_delta.records import ReplayRecords

CHUNK = 64
ROWS = 32
# Columns of a head that one product takes.
HALF = 64


@triton.jit
def _invert(b_a, C: tl.constexpr, PRECISION: tl.constexpr):
    """Return (I + A)^-1 for strictly lower A [C, C], doubling the size of inverted blocks.

    With M the inverse of the blocks on the diagonal and A' the part of A that joins two
    neighbours, the inverse of the joined blocks is M - M A' M: as stable as substitution.
    """
    o_c = tl.arange(0, C)
    m_pair = (o_c[:, None] >> 1 == o_c[None, :] >> 1) & (o_c[:, None] > o_c[None, :])
    b_m = (o_c[:, None] == o_c[None, :]).to(tl.float32) - tl.where(m_pair, b_a, 0.0)
    # Not unrolled: five copies of the products would spill registers.
    for level in range(1, 6):
        o_block = o_c >> level
        m_joint = (o_block[:, None] >> 1 == o_block[None, :] >> 1) & (
            o_block[:, None] > o_block[None, :]
        )
        b_right = tl.dot(tl.where(m_joint, b_a, 0.0), b_m, input_precision=PRECISION)
        b_m -= tl.dot(b_m, b_right, input_precision=PRECISION)
    return b_m


@triton.jit
def solve_kernel(
    mixed_ptr,
    a_ptr,
    b_ptr,
    a_log_ptr,
    dt_bias_ptr,
    norms_ptr,
    total_ptr,
    own_ptr,
    carried_ptr,
    scores_ptr,
    T,
    NK,
    NV,
    stride_column,
    a_stride_column,
    b_stride_column,
    eps,
    scale,
    DV: tl.constexpr,
    DK: tl.constexpr,
    C: tl.constexpr,
    HALF: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """norms [T, nk, 2] get the factors that normalise q and k, `scale` included."""
    i_t = tl.program_id(0)
    i_h = tl.program_id(1)
    i_kh = i_h // (NV // NK)
    o_c = tl.arange(0, C)
    o_d = tl.arange(0, HALF)
    o_t = (i_t * C + o_c).to(tl.int64)
    m_t = o_t < T
    p_q = mixed_ptr + o_t[:, None] * stride_column + i_kh * DK + o_d[None, :]
    p_k = p_q + NK * DK
    # Products of the raw numbers, normalised afterwards: exact where those are bfloat16. In
    # parts of the head, because whole operands would spill registers.
    b_kk = tl.zeros((C, C), tl.float32)
    b_qk = tl.zeros((C, C), tl.float32)
    b_k_norm = tl.zeros((C,), tl.float32)
    b_q_norm = tl.zeros((C,), tl.float32)
    for i in range(0, DK, HALF):
        b_q = tl.load(p_q + i, m_t[:, None], 0.0)
        b_k = tl.load(p_k + i, m_t[:, None], 0.0)
        b_kt = tl.trans(b_k)
        b_kk = tl.dot(b_k, b_kt, b_kk, input_precision=PRECISION)
        b_qk = tl.dot(b_q, b_kt, b_qk, input_precision=PRECISION)
        b_k_norm += tl.sum(b_k.to(tl.float32) * b_k.to(tl.float32), 1)
        b_q_norm += tl.sum(b_q.to(tl.float32) * b_q.to(tl.float32), 1)
    b_k_norm = tl.rsqrt(b_k_norm + eps)
    b_q_norm = tl.rsqrt(b_q_norm + eps) * scale
    p_norm = norms_ptr + (o_t * NK + i_kh) * 2
    tl.store(p_norm, b_q_norm, i_h % (NV // NK) == 0)
    tl.store(p_norm + 1, b_k_norm, i_h % (NV // NK) == 0)

    b_rate = tl.exp(tl.load(a_log_ptr + i_h).to(tl.float32))
    b_bias = tl.load(dt_bias_ptr + i_h).to(tl.float32)
    b_gate = tl.load(a_ptr + o_t * a_stride_column + i_h, m_t, 0.0).to(tl.float32)
    b_beta = tl.load(b_ptr + o_t * b_stride_column + i_h, m_t, 0.0).to(tl.float32)
    # Columns past the end neither decay nor update the state.
    b_total = tl.cumsum(tl.where(m_t, -b_rate * softplus(b_gate + b_bias), 0.0), 0)
    b_beta = tl.where(m_t, 1.0 / (1.0 + tl.exp(-b_beta)), 0.0)
    tl.store(total_ptr + o_t * NV + i_h, b_total)
    m_lower = o_c[:, None] >= o_c[None, :]
    b_between = tl.exp(tl.where(m_lower, b_total[:, None] - b_total[None, :], float("-inf")))
    b_between *= b_k_norm[None, :]
    p_scores = scores_ptr + (o_t[:, None] * NV + i_h) * C + o_c[None, :]
    tl.store(p_scores, b_qk * b_between * b_q_norm[:, None])
    b_a = b_kk * b_between * (b_beta * b_k_norm)[:, None]
    b_m = _invert(tl.where(o_c[:, None] > o_c[None, :], b_a, 0.0), C, PRECISION)

    p_v = mixed_ptr + o_t[:, None] * stride_column + 2 * NK * DK + i_h * DV + o_d[None, :]
    p_own = own_ptr + (o_t[:, None] * NV + i_h) * DV + o_d[None, :]
    for i in range(0, DV, HALF):
        b_v = tl.load(p_v + i, m_t[:, None], 0.0).to(tl.float32) * b_beta[:, None]
        tl.store(p_own + i, tl.dot(b_m, b_v, input_precision=PRECISION))
    b_grown = b_k_norm * b_beta * tl.exp(b_total)
    p_carried = carried_ptr + (o_t[:, None] * NV + i_h) * DK + o_d[None, :]
    for i in range(0, DK, HALF):
        b_k = tl.load(p_k + i, m_t[:, None], 0.0).to(tl.float32) * b_grown[:, None]
        tl.store(p_carried + i, tl.dot(b_m, b_k, input_precision=PRECISION))


@triton.jit
def scan_kernel(
    mixed_ptr,
    norms_ptr,
    total_ptr,
    own_ptr,
    carried_ptr,
    scores_ptr,
    state_ptr,
    key_ptr,
    update_ptr,
    decay_ptr,
    slots_ptr,
    base_ptr,
    accepted_ptr,
    out_ptr,
    T,
    R,
    NK,
    NV,
    stride_column,
    DV: tl.constexpr,
    DK: tl.constexpr,
    C: tl.constexpr,
    HALF: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    i_h = tl.program_id(0) // (DV // ROWS)
    o_v = (tl.program_id(0) % (DV // ROWS)) * ROWS + tl.arange(0, ROWS)
    i_kh = i_h // (NV // NK)
    o_c = tl.arange(0, C)
    o_d = tl.arange(0, HALF)
    i_s = tl.load(slots_ptr).to(tl.int64)
    n_accepted = tl.load(accepted_ptr + i_s)
    first = tl.load(base_ptr) - n_accepted
    p_s = state_ptr + ((i_s * NV + i_h) * DV + o_v[:, None]) * DK + o_d[None, :]
    # The state in two halves of the key: operands of whole keys would spill registers.
    b_s0 = fold(
        tl.load(p_s), key_ptr, update_ptr, decay_ptr, i_s, i_h, o_v, o_d, first, n_accepted,
        R, NK, NV, DV, DK, ROWS, HALF,
    )  # fmt: skip
    b_s1 = fold(
        tl.load(p_s + HALF), key_ptr, update_ptr, decay_ptr, i_s, i_h, o_v, HALF + o_d, first,
        n_accepted, R, NK, NV, DV, DK, ROWS, HALF,
    )  # fmt: skip
    # Scalar addresses walk from chunk to chunk; tiles of 64-bit addresses would fill registers.
    p_q = mixed_ptr + i_kh * DK
    p_norm = norms_ptr + i_kh * 2
    p_total = total_ptr + i_h
    p_own = own_ptr + i_h * DV
    p_carried = carried_ptr + i_h * DK
    p_scores = scores_ptr + i_h * C
    p_out = out_ptr + i_h * DV
    o_q = o_c[:, None] * stride_column + o_d[None, :]
    o_w = o_c[:, None] * (NV * DK) + o_d[None, :]
    for i_t in range(tl.cdiv(T, C)):
        m_t = (i_t * C + o_c < T)[:, None]
        b_total = tl.load(p_total + o_c * NV)
        b_last = tl.load(p_total + (C - 1) * NV)
        b_q_norm = tl.load(p_norm + o_c * (NK * 2)) * tl.exp(b_total)
        b_k_norm = tl.load(p_norm + 1 + o_c * (NK * 2)) * tl.exp(b_last - b_total)
        b_u = tl.load(p_own + o_c[:, None] * (NV * DV) + o_v[None, :])
        b_st = tl.trans(b_s0)
        b_u -= tl.dot(tl.load(p_carried + o_w), b_st, input_precision=PRECISION)
        b_q = tl.load(p_q + o_q, m_t, 0.0).to(tl.float32) * b_q_norm[:, None]
        b_o = tl.dot(b_q, b_st, input_precision=PRECISION)
        b_st = tl.trans(b_s1)
        b_u -= tl.dot(tl.load(p_carried + HALF + o_w), b_st, input_precision=PRECISION)
        b_q = tl.load(p_q + HALF + o_q, m_t, 0.0).to(tl.float32) * b_q_norm[:, None]
        b_o = tl.dot(b_q, b_st, b_o, input_precision=PRECISION)
        b_scores = tl.load(p_scores + o_c[:, None] * (NV * C) + o_c[None, :])
        b_o = tl.dot(b_scores, b_u, b_o, input_precision=PRECISION)
        o_out = o_c[:, None] * (NV * DV) + o_v[None, :]
        tl.store(p_out + o_out, b_o.to(out_ptr.dtype.element_ty), m_t)
        b_ut = tl.trans(b_u)
        b_decay = tl.exp(b_last)
        b_k = tl.load(p_q + NK * DK + o_q, m_t, 0.0).to(tl.float32) * b_k_norm[:, None]
        b_s0 = tl.dot(b_ut, b_k, b_s0 * b_decay, input_precision=PRECISION)
        b_k = tl.load(p_q + NK * DK + HALF + o_q, m_t, 0.0).to(tl.float32) * b_k_norm[:, None]
        b_s1 = tl.dot(b_ut, b_k, b_s1 * b_decay, input_precision=PRECISION)
        p_q += C * stride_column
        p_norm += C * NK * 2
        p_total += C * NV
        p_own += C * NV * DV
        p_carried += C * NV * DK
        p_scores += C * NV * C
        p_out += C * NV * DV
    tl.store(p_s, b_s0)
    tl.store(p_s + HALF, b_s1)


@dataclass(frozen=True)
class _Workspace:
    """fp32 tensors over T rounded up to whole chunks."""

    norms: torch.Tensor
    total: torch.Tensor
    own: torch.Tensor
    carried: torch.Tensor
    scores: torch.Tensor


def _allocate(mixed: torch.Tensor, state: torch.Tensor, key_heads: int) -> _Workspace:
    rows = triton.cdiv(mixed.shape[1], CHUNK) * CHUNK
    heads, value_dim, key_dim = state.shape[1:]

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(rows, *shape, dtype=torch.float32, device=mixed.device)

    return _Workspace(
        norms=empty(key_heads, 2),
        total=empty(heads),
        own=empty(heads, value_dim),
        carried=empty(heads, key_dim),
        scores=empty(heads, CHUNK),
    )


def launch_prefill(
    mixed: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    state: torch.Tensor,
    records: ReplayRecords,
    slots: torch.Tensor,
    base: torch.Tensor,
    accepted: torch.Tensor,
    eps: float,
    out: torch.Tensor,
) -> torch.Tensor:
    count, (heads, value_dim, key_dim) = mixed.shape[1], state.shape[1:]
    if key_dim != 2 * HALF or value_dim % HALF:
        raise ValueError(f"state: got heads of {value_dim}x{key_dim}, want 128x128")
    key_heads = records.key.shape[2]
    space = _allocate(mixed, state, key_heads)
    shared = (space.norms, space.total, space.own, space.carried, space.scores)
    exact = mixed.dtype == torch.float32
    solve_kernel[(triton.cdiv(count, CHUNK), heads)](
        mixed,
        a,
        b,
        a_log,
        dt_bias,
        *shared,
        count,
        key_heads,
        heads,
        mixed.stride(1),
        a.stride(1),
        b.stride(1),
        eps,
        key_dim**-0.5,
        DV=value_dim,
        DK=key_dim,
        C=CHUNK,
        HALF=HALF,
        PRECISION="ieee" if exact else "tf32",
        num_warps=8,
        num_stages=1,
    )
    rows = min(ROWS, value_dim)
    scan_kernel[(heads * (value_dim // rows),)](
        mixed,
        *shared,
        state,
        records.key,
        records.update,
        records.decay,
        slots,
        base,
        accepted,
        out,
        count,
        records.length,
        key_heads,
        heads,
        mixed.stride(1),
        DV=value_dim,
        DK=key_dim,
        C=CHUNK,
        HALF=HALF,
        ROWS=rows,
        PRECISION="ieee" if exact else "tf32",
        num_warps=8,
        num_stages=1,
    )
    return out


_DATA = ("mixed_ptr", "a_ptr", "b_ptr", "out_ptr")
_INDICES = ("slots_ptr", "base_ptr", "accepted_ptr")


def _argument_type(argument: str, dtype: str) -> str:
    if argument in _DATA:
        return f"*{dtype}"
    if argument in _INDICES:
        return "*i32"
    if argument.endswith("_ptr"):
        return "*fp32"
    return "fp32" if argument in ("eps", "scale") else "i32"


def _compile(name: str, kernel: Any, dtype: str, **constants: int) -> Compilation:
    constants = {"DV": 128, "DK": 128, "C": CHUNK, **constants}
    precision = {"PRECISION": "ieee" if dtype == "fp32" else "tf32"}
    signature = {
        argument: _argument_type(argument, dtype)
        for argument in kernel.arg_names
        if argument not in constants and argument not in precision
    }
    return Compilation(
        name=f"gated_delta_{name}_{dtype}",
        kernel=kernel,
        signature=signature,
        constants={**constants, **precision},
        divisible=tuple(a for a in signature if a.endswith("_ptr") or a == "stride_column"),
        num_warps=8,
        num_stages=1,
    )


COMPILATIONS = (
    _compile("solve", solve_kernel, "bf16", HALF=HALF),
    _compile("scan", scan_kernel, "bf16", HALF=HALF, ROWS=ROWS),
)
