"""Triton kernels of a mixture-of-experts layer for many tokens: pairs grouped by expert."""

# Triton's types are not Python's: a constexpr parameter takes a number, launches take options.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAssignmentType=false

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation
from ninfer_kernels.launch import ceil_div
from ninfer_kernels.linear.matrix import BF16, FP8, NVFP4, Q4, Q5, Q8
from ninfer_kernels.linear.tile import (
    FORMAT_IDS,
    TILE_K,
    dot_step,
    plane_pointers,
    plane_signature,
    scale_rows,
)
from ninfer_kernels.moe.experts import MoeWeights
from ninfer_kernels.moe.kernel import renamed_signature
from ninfer_kernels.swiglu.kernel import silu

# Pairs in one program; an expert's last program is padded to it.
_BLOCK_PAIRS = 32
_BLOCK_ROWS = 64
_NUM_WARPS = 8
_NUM_STAGES = 3

# Half of a skinny product's step: gate and up decode side by side and must share the registers.
_STEP = 64


# Left alone, ptxas spills two registers on some cards to fit one more program.
_MAX_REGISTERS = {NVFP4: 144}


@dataclass(frozen=True)
class Groups:
    """Pairs sorted by expert: order int32 [A]; per expert the first place, the number of pairs,
    and the number of programs up to and with it, all int32 [E] on the device."""

    order: torch.Tensor
    starts: torch.Tensor
    counts: torch.Tensor
    program_ends: torch.Tensor


def group_pairs(ids: torch.Tensor, experts: int) -> Groups:
    """Return the pairs of ids [T, top_k] sorted by expert, without waiting for the device."""
    flat = ids.flatten().long()
    order = torch.sort(flat, stable=True).indices.int()
    ones = torch.ones_like(flat, dtype=torch.int32)
    counts = torch.zeros(experts, dtype=torch.int32, device=ids.device).index_add_(0, flat, ones)
    programs = (counts + (_BLOCK_PAIRS - 1)) // _BLOCK_PAIRS
    ends, program_ends = counts.cumsum(0).int(), programs.cumsum(0).int()
    return Groups(order, ends - counts, counts, program_ends)


@triton.jit
def find_group(order_ptr, starts_ptr, counts_ptr, ends_ptr, E, BE: tl.constexpr, BT: tl.constexpr):
    """Return expert and pairs int32 [BT] of this program, and which of the pairs exist.

    A program past the last has no pairs.
    """
    i_b = tl.program_id(0)
    o_e = tl.arange(0, BE)
    b_ends = tl.load(ends_ptr + o_e, mask=o_e < E, other=2147483647)
    i_e = tl.sum((b_ends <= i_b).to(tl.int32), axis=0)
    exists = i_e < E
    i_e = tl.minimum(i_e, E - 1)
    before = tl.load(ends_ptr + i_e - 1, mask=i_e > 0, other=0)
    o_p = (i_b - before) * BT + tl.arange(0, BT)
    m_p = (o_p < tl.load(counts_ptr + i_e)) & exists
    b_pairs = tl.load(order_ptr + tl.load(starts_ptr + i_e) + o_p, mask=m_p, other=0)
    return i_e.to(tl.int64), b_pairs.to(tl.int64), m_p


@triton.jit
def gate_up_groups(
    x_ptr, order_ptr, starts_ptr, counts_ptr, ends_ptr,
    gw_ptr, gh_ptr, gs_ptr, uw_ptr, uh_ptr, us_ptr, y_ptr,
    E, WIDTH, K, x_stride, gate_stride, gate_offset, up_stride, up_offset,
    TOP_K: tl.constexpr, GATE: tl.constexpr, UP: tl.constexpr, BE: tl.constexpr,
    BN: tl.constexpr, BT: tl.constexpr, GATE_BK: tl.constexpr, UP_BK: tl.constexpr,
    STEP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """y[a, i] = silu(gate x) * up x for BT pairs a of one expert and BN values i."""
    i_e, b_pairs, m_p = find_group(order_ptr, starts_ptr, counts_ptr, ends_ptr, E, BE, BT)
    o_i = tl.program_id(1) * BN + tl.arange(0, BN)
    o_row = tl.minimum(o_i, WIDTH - 1)
    o_gate = i_e * gate_stride + gate_offset + o_row
    o_up = i_e * up_stride + up_offset + o_row
    p_x = x_ptr + (b_pairs // TOP_K) * x_stride
    b_gate = tl.zeros((BN, BT), tl.float32)
    b_up = tl.zeros((BN, BT), tl.float32)
    for k in range(0, K, STEP):
        b_gate = dot_step(
            b_gate, p_x, m_p, gw_ptr, gh_ptr, gs_ptr, o_gate, k, K, GATE, GATE_BK, STEP, EVEN
        )
        b_up = dot_step(b_up, p_x, m_p, uw_ptr, uh_ptr, us_ptr, o_up, k, K, UP, UP_BK, STEP, EVEN)
    b_gate = scale_rows(b_gate, gs_ptr, o_gate, GATE)
    b_y = silu(b_gate) * scale_rows(b_up, us_ptr, o_up, UP)
    m_y = (o_i < WIDTH)[:, None] & m_p[None, :]
    p_y = y_ptr + b_pairs[None, :] * WIDTH + o_i[:, None]
    tl.store(p_y, b_y.to(y_ptr.dtype.element_ty), mask=m_y)


@triton.jit
def down_groups(
    x_ptr, order_ptr, starts_ptr, counts_ptr, ends_ptr, w_ptr, h_ptr, s_ptr, y_ptr,
    E, N, K, stride, offset,
    FORMAT: tl.constexpr, BE: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr,
    BK: tl.constexpr, STEP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """y[a, n] = down x[a] for BT pairs a of one expert and BN values n."""
    i_e, b_pairs, m_p = find_group(order_ptr, starts_ptr, counts_ptr, ends_ptr, E, BE, BT)
    o_n = tl.program_id(1) * BN + tl.arange(0, BN)
    o_w = i_e * stride + offset + tl.minimum(o_n, N - 1)
    p_x = x_ptr + b_pairs * K
    b_acc = tl.zeros((BN, BT), tl.float32)
    for k in range(0, K, STEP):
        b_acc = dot_step(b_acc, p_x, m_p, w_ptr, h_ptr, s_ptr, o_w, k, K, FORMAT, BK, STEP, EVEN)
    b_acc = scale_rows(b_acc, s_ptr, o_w, FORMAT)
    m_y = (o_n < N)[:, None] & m_p[None, :]
    p_y = y_ptr + b_pairs[None, :] * N + o_n[:, None]
    tl.store(p_y, b_acc.to(y_ptr.dtype.element_ty), mask=m_y)


def launch_groups(
    x: torch.Tensor,
    weights: MoeWeights,
    ids: torch.Tensor,
    hidden: torch.Tensor,
    pairs: torch.Tensor,
) -> None:
    """Write hidden [T * top_k, I] and pairs [T * top_k, H] of bfloat16 x, expert by expert."""
    gate, up, down = weights.gate, weights.up, weights.down
    experts = weights.router.rows
    groups = group_pairs(ids, experts)
    places = (groups.order, groups.starts, groups.counts, groups.program_ends)
    # Every expert wastes at most one program; those past the last end at once.
    count = ids.numel()
    programs = min(count, count // _BLOCK_PAIRS + experts)
    width, columns = hidden.shape[1], x.shape[1]
    sizes = {
        "BE": triton.next_power_of_2(experts), "BT": _BLOCK_PAIRS,
        "STEP": _STEP, "num_warps": _NUM_WARPS, "num_stages": _NUM_STAGES,
    }  # fmt: skip
    gate_up_groups[(programs, ceil_div(width, _BLOCK_ROWS))](
        x, *places, *plane_pointers(gate.matrix), *plane_pointers(up.matrix), hidden,
        experts, width, columns, x.stride(0), gate.stride, gate.offset, up.stride, up.offset,
        TOP_K=weights.top_k, BN=_BLOCK_ROWS, GATE=FORMAT_IDS[gate.matrix.format],
        UP=FORMAT_IDS[up.matrix.format], GATE_BK=TILE_K[gate.matrix.format],
        UP_BK=TILE_K[up.matrix.format], EVEN=columns % _STEP == 0,
        maxnreg=_MAX_REGISTERS.get(gate.matrix.format), **sizes,
    )  # fmt: skip
    down_groups[(programs, ceil_div(pairs.shape[1], _BLOCK_ROWS))](
        hidden, *places, *plane_pointers(down.matrix), pairs, experts, pairs.shape[1], width,
        down.stride, down.offset, BN=_BLOCK_ROWS, FORMAT=FORMAT_IDS[down.matrix.format],
        BK=TILE_K[down.matrix.format], EVEN=width % _STEP == 0, **sizes,
    )  # fmt: skip


_PLACES = dict.fromkeys(("order_ptr", "starts_ptr", "counts_ptr", "ends_ptr"), "*i32")
_SIZES = {"BE": 256, "BT": _BLOCK_PAIRS, "STEP": _STEP, "EVEN": True}


def _gate_up_compilation(format: str) -> Compilation:
    whole = ("E", "WIDTH", "K", "x_stride", "gate_stride", "gate_offset", "up_stride", "up_offset")
    signature = {
        "x_ptr": "*bf16", **_PLACES, **renamed_signature(format, "g"),
        **renamed_signature(format, "u"), "y_ptr": "*bf16", **dict.fromkeys(whole, "i32"),
    }  # fmt: skip
    constants = {
        "TOP_K": 8, "BN": _BLOCK_ROWS, "GATE": FORMAT_IDS[format], "UP": FORMAT_IDS[format],
        "GATE_BK": TILE_K[format], "UP_BK": TILE_K[format], **_SIZES,
    }  # fmt: skip
    return Compilation(
        f"gate_up_groups {format}", gate_up_groups, signature, constants, tuple(signature),
        _NUM_WARPS, _NUM_STAGES,
        options={"maxnreg": _MAX_REGISTERS[format]} if format in _MAX_REGISTERS else {},
    )  # fmt: skip


def _down_compilation(format: str) -> Compilation:
    signature = {
        "x_ptr": "*bf16", **_PLACES, **plane_signature(format), "y_ptr": "*bf16",
        **dict.fromkeys(("E", "N", "K", "stride", "offset"), "i32"),
    }  # fmt: skip
    constants = {"BN": _BLOCK_ROWS, "FORMAT": FORMAT_IDS[format], "BK": TILE_K[format], **_SIZES}
    return Compilation(
        f"down_groups {format}", down_groups, signature, constants, tuple(signature),
        _NUM_WARPS, _NUM_STAGES,
    )  # fmt: skip


_STACKED_FORMATS = (NVFP4, Q4, Q5, Q8, FP8, BF16)

COMPILATIONS: tuple[Compilation, ...] = (
    *(_gate_up_compilation(format) for format in _STACKED_FORMATS),
    *(_down_compilation(format) for format in _STACKED_FORMATS),
)
