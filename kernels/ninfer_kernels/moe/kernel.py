"""Triton kernels of a mixture-of-experts layer for few tokens: routing, pairs, combination."""

# Triton's types are not Python's: a constexpr parameter takes a number, launches take options.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAssignmentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation
from ninfer_kernels.launch import ceil_div
from ninfer_kernels.linear.matrix import BF16, FP8, NVFP4, Q4, Q5, Q8
from ninfer_kernels.linear.plan import STEP_K
from ninfer_kernels.linear.tile import (
    FORMAT_IDS,
    TILE_K,
    plane_pointers,
    plane_signature,
    row_step,
    scale_rows,
)
from ninfer_kernels.moe.experts import ExpertStack, MoeWeights
from ninfer_kernels.swiglu.kernel import silu

_BLOCK_ROWS = 16
_COMBINE_COLUMNS = 1024
_NUM_WARPS = 4
_NUM_STAGES = 3


@triton.jit
def route_tokens(
    logits_ptr, ids_ptr, weights_ptr, E, TOP_K: tl.constexpr, BE: tl.constexpr, BJ: tl.constexpr
):
    """Experts and weights of one token; w_j = exp(l_j - m) / sum, softmax's denominator cancels."""
    i_t = tl.program_id(0).to(tl.int64)
    o_e = tl.arange(0, BE)
    o_j = tl.arange(0, BJ)
    b_logits = tl.load(logits_ptr + i_t * E + o_e, mask=o_e < E, other=-float("inf"))
    top = tl.max(b_logits, axis=0)
    b_ids = tl.zeros((BJ,), tl.int32)
    b_weights = tl.zeros((BJ,), tl.float32)
    for j in range(TOP_K):
        best = tl.max(b_logits, axis=0)
        # Of equals the lowest. With NaN there is none: any expert that exists will do then.
        i_e = tl.minimum(tl.min(tl.where(b_logits == best, o_e, BE), axis=0), E - 1)
        b_ids = tl.where(o_j == j, i_e, b_ids)
        b_weights = tl.where(o_j == j, tl.exp(best - top), b_weights)
        b_logits = tl.where(o_e == i_e, -float("inf"), b_logits)
    b_weights = b_weights / tl.sum(b_weights, axis=0)
    m_j = o_j < TOP_K
    tl.store(ids_ptr + i_t * TOP_K + o_j, b_ids, mask=m_j)
    b_rounded = b_weights.to(weights_ptr.dtype.element_ty)
    tl.store(weights_ptr + i_t * TOP_K + o_j, b_rounded, mask=m_j)


@triton.jit
def expert_rows(
    p_x, i_e, o_i, w_ptr, h_ptr, s_ptr, ROWS, STRIDE, OFFSET, K,
    FORMAT: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    STEP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Return rows `o_i` of expert `i_e` times one row of x, float32 [BN]."""
    o_w = i_e * STRIDE + OFFSET + tl.minimum(o_i, ROWS - 1)
    b_acc = tl.zeros((BN, BK), tl.float32)
    for k in range(0, K, STEP):
        b_acc = row_step(b_acc, p_x, w_ptr, h_ptr, s_ptr, o_w, k, K, FORMAT, BK, STEP, EVEN)
    b_sum = scale_rows(tl.sum(b_acc, axis=1)[:, None], s_ptr, o_w, FORMAT)
    return tl.sum(b_sum, axis=1)


@triton.jit
def gate_up_pairs(
    x_ptr, ids_ptr, gw_ptr, gh_ptr, gs_ptr, uw_ptr, uh_ptr, us_ptr, y_ptr,
    WIDTH, K, x_stride, gate_stride, gate_offset, up_stride, up_offset,
    TOP_K: tl.constexpr, GATE: tl.constexpr, UP: tl.constexpr, BN: tl.constexpr,
    GATE_BK: tl.constexpr, UP_BK: tl.constexpr, STEP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """y[a, i] = silu(gate x) * up x of pair a = t * TOP_K + j, for BN values i."""
    i_a, i_n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    o_i = i_n * BN + tl.arange(0, BN)
    i_e = tl.load(ids_ptr + i_a).to(tl.int64)
    p_x = x_ptr + (i_a // TOP_K) * x_stride
    b_gate = expert_rows(
        p_x, i_e, o_i, gw_ptr, gh_ptr, gs_ptr, WIDTH, gate_stride, gate_offset, K,
        GATE, BN, GATE_BK, STEP, EVEN,
    )  # fmt: skip
    b_up = expert_rows(
        p_x, i_e, o_i, uw_ptr, uh_ptr, us_ptr, WIDTH, up_stride, up_offset, K,
        UP, BN, UP_BK, STEP, EVEN,
    )  # fmt: skip
    b_y = silu(b_gate) * b_up
    tl.store(y_ptr + i_a * WIDTH + o_i, b_y.to(y_ptr.dtype.element_ty), mask=o_i < WIDTH)


@triton.jit
def down_pairs(
    x_ptr, ids_ptr, w_ptr, h_ptr, s_ptr, y_ptr, N, K, stride, offset,
    FORMAT: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    STEP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """y[a, n] = down x[a] of pair a, for BN values n."""
    i_a, i_n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    o_n = i_n * BN + tl.arange(0, BN)
    i_e = tl.load(ids_ptr + i_a).to(tl.int64)
    b_y = expert_rows(
        x_ptr + i_a * K, i_e, o_n, w_ptr, h_ptr, s_ptr, N, stride, offset, K,
        FORMAT, BN, BK, STEP, EVEN,
    )  # fmt: skip
    tl.store(y_ptr + i_a * N + o_n, b_y.to(y_ptr.dtype.element_ty), mask=o_n < N)


@triton.jit
def combine_pairs(
    pairs_ptr, weights_ptr, shared_ptr, score_ptr, y_ptr, N, y_stride,
    TOP_K: tl.constexpr, BN: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """y[t, n] = sum_j w[t, j] * pairs[t, j, n] (+ sigmoid(score[t]) * shared[t, n])."""
    i_t, i_n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    o_n = i_n * BN + tl.arange(0, BN)
    m_n = o_n < N
    b_y = tl.zeros((BN,), tl.float32)
    for j in range(TOP_K):
        weight = tl.load(weights_ptr + i_t * TOP_K + j).to(tl.float32)
        p_pair = pairs_ptr + (i_t * TOP_K + j) * N + o_n
        b_y += weight * tl.load(p_pair, mask=m_n, other=0.0).to(tl.float32)
    if SHARED:
        share = 1.0 / (1.0 + tl.exp(-tl.load(score_ptr + i_t).to(tl.float32)))
        b_shared = tl.load(shared_ptr + i_t * N + o_n, mask=m_n, other=0.0)
        b_y += share * b_shared.to(tl.float32)
    tl.store(y_ptr + i_t * y_stride + o_n, b_y.to(y_ptr.dtype.element_ty), mask=m_n)


def launch_route(logits: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> None:
    """Write experts and weights of logits [T, E] to [T, top_k]."""
    tokens, experts = logits.shape
    top_k = ids.shape[1]
    route_tokens[(tokens,)](
        logits, ids, weights, experts, TOP_K=top_k,
        BE=triton.next_power_of_2(experts), BJ=triton.next_power_of_2(top_k),
    )  # fmt: skip


def launch_pairs(
    x: torch.Tensor,
    weights: MoeWeights,
    ids: torch.Tensor,
    hidden: torch.Tensor,
    pairs: torch.Tensor,
) -> None:
    """Write hidden [T * top_k, I] and pairs [T * top_k, H], pair by pair."""
    gate, up, down = weights.gate, weights.up, weights.down
    width, columns = hidden.shape[1], x.shape[1]
    gate_up_pairs[(hidden.shape[0], ceil_div(width, _BLOCK_ROWS))](
        x, ids, *plane_pointers(gate.matrix), *plane_pointers(up.matrix), hidden,
        width, columns, x.stride(0), gate.stride, gate.offset, up.stride, up.offset,
        TOP_K=weights.top_k, GATE=_format(gate), UP=_format(up), BN=_BLOCK_ROWS,
        GATE_BK=TILE_K[gate.matrix.format], UP_BK=TILE_K[up.matrix.format], STEP=STEP_K,
        EVEN=columns % STEP_K == 0, num_warps=_NUM_WARPS, num_stages=_NUM_STAGES,
    )  # fmt: skip
    down_pairs[(pairs.shape[0], ceil_div(pairs.shape[1], _BLOCK_ROWS))](
        hidden, ids, *plane_pointers(down.matrix), pairs, pairs.shape[1], width, down.stride,
        down.offset, FORMAT=_format(down), BN=_BLOCK_ROWS, BK=TILE_K[down.matrix.format],
        STEP=STEP_K, EVEN=width % STEP_K == 0, num_warps=_NUM_WARPS, num_stages=_NUM_STAGES,
    )  # fmt: skip


def launch_combine(
    pairs: torch.Tensor,
    weights: torch.Tensor,
    shared: torch.Tensor | None,
    score: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Write the weighted sums of pairs [T * top_k, H] to out [T, H]."""
    tokens, columns = out.shape
    combine_pairs[(tokens, ceil_div(columns, _COMBINE_COLUMNS))](
        pairs, weights, out if shared is None else shared, out if score is None else score, out,
        columns, out.stride(0), TOP_K=weights.shape[1], BN=_COMBINE_COLUMNS,
        SHARED=shared is not None,
    )  # fmt: skip


def _format(stack: ExpertStack) -> int:
    return FORMAT_IDS[stack.matrix.format]


def renamed_signature(format: str, prefix: str) -> dict[str, str]:
    """Return the plane types under names like gw_ptr instead of w_ptr."""
    return {prefix + name: type for name, type in plane_signature(format).items()}


def _gate_up_compilation(format: str) -> Compilation:
    whole = ("WIDTH", "K", "x_stride", "gate_stride", "gate_offset", "up_stride", "up_offset")
    signature = {
        "x_ptr": "*bf16", "ids_ptr": "*i32", **renamed_signature(format, "g"),
        **renamed_signature(format, "u"), "y_ptr": "*bf16", **dict.fromkeys(whole, "i32"),
    }  # fmt: skip
    constants = {
        "TOP_K": 8, "GATE": FORMAT_IDS[format], "UP": FORMAT_IDS[format], "BN": _BLOCK_ROWS,
        "GATE_BK": TILE_K[format], "UP_BK": TILE_K[format], "STEP": STEP_K, "EVEN": True,
    }  # fmt: skip
    return Compilation(
        f"gate_up_pairs {format}", gate_up_pairs, signature, constants, tuple(signature),
        _NUM_WARPS, _NUM_STAGES, max_registers=128,
    )  # fmt: skip


def _down_compilation(format: str) -> Compilation:
    signature = {
        "x_ptr": "*bf16", "ids_ptr": "*i32", **plane_signature(format), "y_ptr": "*bf16",
        **dict.fromkeys(("N", "K", "stride", "offset"), "i32"),
    }  # fmt: skip
    constants = {
        "FORMAT": FORMAT_IDS[format], "BN": _BLOCK_ROWS, "BK": TILE_K[format], "STEP": STEP_K,
        "EVEN": True,
    }  # fmt: skip
    return Compilation(
        f"down_pairs {format}", down_pairs, signature, constants, tuple(signature),
        _NUM_WARPS, _NUM_STAGES, max_registers=128,
    )  # fmt: skip


_ROUTE = Compilation(
    "route_tokens 256 of 8",
    route_tokens,
    {"logits_ptr": "*fp32", "ids_ptr": "*i32", "weights_ptr": "*bf16", "E": "i32"},
    {"TOP_K": 8, "BE": 256, "BJ": 8},
    divisible=("logits_ptr", "ids_ptr", "weights_ptr", "E"),
)
_COMBINE = Compilation(
    "combine_pairs",
    combine_pairs,
    {
        **dict.fromkeys(("pairs_ptr", "weights_ptr", "shared_ptr"), "*bf16"),
        "score_ptr": "*fp32", "y_ptr": "*bf16", "N": "i32", "y_stride": "i32",
    },
    {"TOP_K": 8, "BN": _COMBINE_COLUMNS, "SHARED": True},
    divisible=("pairs_ptr", "weights_ptr", "shared_ptr", "score_ptr", "y_ptr", "N", "y_stride"),
)  # fmt: skip

_STACKED_FORMATS = (NVFP4, Q4, Q5, Q8, FP8, BF16)

COMPILATIONS: tuple[Compilation, ...] = (
    _ROUTE,
    _COMBINE,
    *(_gate_up_compilation(format) for format in _STACKED_FORMATS),
    *(_down_compilation(format) for format in _STACKED_FORMATS),
)
