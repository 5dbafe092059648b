"""Paged attention on the GPU: one kernel for prefill, decode and verify, one to join splits."""

# Triton rewrites jit bodies and their calls; a type checker cannot follow.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAssignmentType=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation
from ninfer_kernels.kv_codec.pages import PAGE_TOKENS, KVPages
from ninfer_kernels.kv_codec.tile import KIND_IDS
from ninfer_kernels.paged_attention.plan import (
    PREFILL_ROWS,
    ROUND_ROWS,
    Machine,
    machine_of,
    plan_attention,
)
from ninfer_kernels.paged_attention.tile import LOWEST, attend, keys_per_split

LOG2_E = 1.4426950408889634
JOIN_STEP = 8


@triton.jit
def attention_kernel(
    q_ptr,
    keys_ptr,
    values_ptr,
    key_scales_ptr,
    value_scales_ptr,
    block_table_ptr,
    base_ptr,
    columns_ptr,
    out_ptr,
    parts_ptr,
    stats_ptr,
    scale,
    W,
    max_pages,
    q_lane_stride,
    q_column_stride,
    q_head_stride,
    HQ: tl.constexpr,
    HK: tl.constexpr,
    D: tl.constexpr,
    KIND: tl.constexpr,
    PAGE: tl.constexpr,
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """ROWS (column, head of the group) pairs of one lane and kv head against one split of keys.

    With one split the result goes to out [L, W, HQ, D]; with several, weighted sums go to parts
    [SPLITS, L, W, HQ, D] and (highest score, weights) to stats [SPLITS, L, W, HQ, 2].
    """
    GROUP: tl.constexpr = HQ // HK
    # Blocks with the longest rows of keys start first.
    i_block = tl.num_programs(0) - 1 - tl.program_id(0)
    i_lane, i_kv = tl.program_id(1) // HK, tl.program_id(1) % HK
    i_split = tl.program_id(2)
    i_base, i_columns = tl.load(base_ptr + i_lane), tl.load(columns_ptr + i_lane)
    o_r = i_block * ROWS + tl.arange(0, ROWS)
    o_w, o_h = o_r // GROUP, i_kv * GROUP + o_r % GROUP
    i_last_column = tl.minimum((i_block * ROWS + ROWS - 1) // GROUP, i_columns - 1)
    # Keys that the block's last real row sees; none for a block of padding.
    is_real = i_block * ROWS // GROUP < i_columns
    i_end = tl.where(is_real, i_base + i_last_column + 1, 0)
    i_begin = 0
    if SPLITS > 1:
        i_keys = keys_per_split(i_base + i_columns, SPLITS, KEYS)
        i_begin = i_split * i_keys
        if i_begin >= i_base + i_columns:
            return
        i_end = tl.minimum(i_end, i_begin + i_keys)
    o_d = tl.arange(0, BLOCK_D)
    m_real = (o_w < i_columns)[:, None] & (o_d < D)[None, :]
    o_q = o_w.to(tl.int64) * q_column_stride + o_h * q_head_stride
    p_q = q_ptr + i_lane.to(tl.int64) * q_lane_stride + o_q
    b_q = tl.load(p_q[:, None] + o_d[None, :], mask=m_real, other=0.0)
    b_last = tl.where(o_w < i_columns, i_base + o_w, -1)
    b_acc, b_total, b_highest = attend(
        b_q, b_last, i_begin, i_end, i_kv, keys_ptr, values_ptr, key_scales_ptr, value_scales_ptr,
        block_table_ptr + i_lane * max_pages, scale,
        HK, D, KIND, PAGE, ROWS, KEYS, BLOCK_D,
    )  # fmt: skip
    o_out = (i_lane * W + o_w).to(tl.int64) * HQ + o_h
    if SPLITS > 1:
        o_out += tl.num_programs(1).to(tl.int64) // HK * i_split * W * HQ
        tl.store(parts_ptr + o_out[:, None] * D + o_d[None, :], b_acc, mask=m_real)
        tl.store(stats_ptr + o_out * 2, b_highest, mask=o_w < i_columns)
        tl.store(stats_ptr + o_out * 2 + 1, b_total, mask=o_w < i_columns)
    else:
        # No weight at all is a padded row (a NaN weight is not equal to 0 and stays).
        b_out = tl.where((b_total == 0.0)[:, None], 0.0, b_acc / b_total[:, None])
        m_out = (o_w < W)[:, None] & (o_d < D)[None, :]
        tl.store(out_ptr + o_out[:, None] * D + o_d[None, :], b_out, mask=m_out)


@triton.jit
def join_kernel(
    parts_ptr,
    stats_ptr,
    base_ptr,
    columns_ptr,
    out_ptr,
    W,
    HQ: tl.constexpr,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
    KEYS: tl.constexpr,
    STEP: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """out[l, w, h] = sum_s 2^(m_s - m) parts_s / sum_s 2^(m_s - m) weights_s, splits in order."""
    i_row, i_lane = tl.program_id(0), tl.program_id(1)
    i_base, i_columns = tl.load(base_ptr + i_lane), tl.load(columns_ptr + i_lane)
    o_d = tl.arange(0, BLOCK_D)
    o_out = i_lane.to(tl.int64) * W * HQ + i_row
    rows = tl.num_programs(1).to(tl.int64) * W * HQ
    b_out = tl.zeros((BLOCK_D,), tl.float32)
    if i_row // HQ < i_columns:
        i_length = i_base + i_columns
        i_keys = keys_per_split(i_length, SPLITS, KEYS)
        i_used = (i_length + i_keys - 1) // i_keys
        o_s = tl.arange(0, BLOCK_SPLITS)
        p_stats = stats_ptr + (o_s * rows + o_out) * 2
        b_highest = tl.load(p_stats, mask=o_s < i_used, other=LOWEST)
        b_weight = tl.load(p_stats + 1, mask=o_s < i_used, other=0.0)
        b_top = tl.max(b_highest, 0)
        b_total = tl.sum(b_weight * tl.exp2(b_highest - b_top), 0)
        for i_first in range(0, i_used, STEP):
            o_part = i_first + tl.arange(0, STEP)
            p_part = (o_part * rows + o_out) * 2
            b_scale = tl.load(stats_ptr + p_part, mask=o_part < i_used, other=LOWEST)
            m_part = (o_part < i_used)[:, None] & (o_d < D)[None, :]
            p_part = parts_ptr + (o_part * rows + o_out)[:, None] * D + o_d[None, :]
            b_part = tl.load(p_part, mask=m_part, other=0.0)
            b_out += tl.sum(b_part * tl.exp2(b_scale - b_top)[:, None], 0)
        b_out = b_out / b_total
    tl.store(out_ptr + o_out * D + o_d, b_out, mask=o_d < D)


def launch(
    q: torch.Tensor,
    cache: KVPages,
    block_table: torch.Tensor,
    base: torch.Tensor,
    columns: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    workspace: torch.Tensor | None,
) -> None:
    """Attend q [L, W, Hq, D]; see `paged_attention`. Raises ValueError for a small workspace."""
    lanes, width, q_heads, size = q.shape
    if lanes == 0 or width == 0:
        return
    kv_heads, max_pages = cache.keys.shape[1], block_table.shape[1]
    machine = machine_of(q.device)
    plan = plan_attention(lanes, width, q_heads, kv_heads, size, max_pages, machine.processors)
    parts, stats = _divide(workspace, out, plan.splits, plan.workspace, size)
    constants = _constants(cache.kind, q_heads, kv_heads, size, plan.splits)
    tile = tile_for(q.dtype, plan.rows, machine)
    attention_kernel[(plan.row_blocks, lanes * kv_heads, plan.splits)](
        q,
        cache.keys,
        cache.values,
        cache.keys if cache.key_scales is None else cache.key_scales,
        cache.values if cache.value_scales is None else cache.value_scales,
        block_table,
        base,
        columns,
        out,
        parts,
        stats,
        scale * LOG2_E,
        width,
        max_pages,
        *q.stride()[:3],
        **constants,
        ROWS=plan.rows,
        **tile,
    )
    if plan.splits > 1:
        join_kernel[(width * q_heads, lanes)](
            parts,
            stats,
            base,
            columns,
            out,
            width,
            **_join_constants(q_heads, size, plan.splits, tile["KEYS"]),
        )


def tile_for(dtype: torch.dtype, rows: int, machine: Machine) -> dict[str, Any]:
    """Return KEYS, num_warps and num_stages that fit the registers and the shared memory."""
    if dtype == torch.float32:
        return {"KEYS": 16, "num_warps": 4, "num_stages": 1}
    if rows == ROUND_ROWS:
        # 64 keys with four warps spill; the partition of keys must not depend on the machine.
        large = machine.shared_bytes >= 160 * 1024
        return {"KEYS": 32, "num_warps": 4, "num_stages": 3 if large else 2}
    # Below sm_90 the products of 64 keys take more registers than there are.
    large = machine.shared_bytes >= 200 * 1024
    return {"KEYS": 64 if large else 32, "num_warps": 8, "num_stages": 2}


def _divide(
    workspace: torch.Tensor | None, out: torch.Tensor, splits: int, numbers: int, size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the workspace as (weighted sums, statistics); unused with one split."""
    if splits == 1:
        return out, out
    if workspace is None:
        workspace = torch.empty(numbers, dtype=torch.float32, device=out.device)
    if workspace.dtype != torch.float32 or workspace.numel() < numbers:
        got = f"{workspace.numel()} {workspace.dtype}"
        raise ValueError(f"workspace: got {got}, want at least {numbers} fp32 numbers")
    boundary = numbers // (size + 2) * size
    flat = workspace.view(-1)
    return flat[:boundary], flat[boundary:numbers]


def _constants(kind: str, q_heads: int, kv_heads: int, size: int, splits: int) -> dict[str, Any]:
    return {
        "HQ": q_heads,
        "HK": kv_heads,
        "D": size,
        "KIND": KIND_IDS[kind],
        "PAGE": PAGE_TOKENS,
        "SPLITS": splits,
        "BLOCK_D": triton.next_power_of_2(size),
    }


def _join_constants(q_heads: int, size: int, splits: int, keys: int) -> dict[str, Any]:
    return {
        "HQ": q_heads,
        "D": size,
        "SPLITS": splits,
        "KEYS": keys,
        "STEP": JOIN_STEP,
        "BLOCK_SPLITS": triton.next_power_of_2(splits),
        "BLOCK_D": triton.next_power_of_2(size),
    }


_CODE_TYPES = {"bf16": "*bf16", "fp8": "*u8", "int8": "*i8"}
_STRIDES = ("q_lane_stride", "q_column_stride", "q_head_stride")
# Machines by the tiles they run, and the architectures of each.
_MACHINES = {
    "large": (Machine(processors=132, shared_bytes=227 * 1024), (90, 100)),
    "medium": (Machine(processors=108, shared_bytes=163 * 1024), (80,)),
    "small": (Machine(processors=82, shared_bytes=99 * 1024), (86, 89, 120)),
}


def _compilation(kind: str, rows: int, splits: int, size: str) -> Compilation:
    machine, architectures = _MACHINES[size]
    codes = dict.fromkeys(("keys_ptr", "values_ptr"), _CODE_TYPES[kind])
    scale_type = "*bf16" if kind == "bf16" else "*fp16"
    scales = dict.fromkeys(("key_scales_ptr", "value_scales_ptr"), scale_type)
    tables = dict.fromkeys(("block_table_ptr", "base_ptr", "columns_ptr"), "*i32")
    part_type = "*fp32" if splits > 1 else "*bf16"
    parts = dict.fromkeys(("parts_ptr", "stats_ptr"), part_type)
    numbers = {"scale": "fp32", "W": "i32", "max_pages": "i32", **dict.fromkeys(_STRIDES, "i32")}
    tile = tile_for(torch.bfloat16, rows, machine)
    options = {name: tile.pop(name) for name in ("num_warps", "num_stages")}
    pointers = {"q_ptr": "*bf16", **codes, **scales, **tables, "out_ptr": "*bf16", **parts}
    kernel = "prefill" if rows > ROUND_ROWS else "round"
    return Compilation(
        name=f"attention_{kernel}_{kind}_{size}",
        kernel=attention_kernel,
        signature={**pointers, **numbers},
        constants=_constants(kind, 24, 4, 256, splits) | {"ROWS": rows} | tile,
        divisible=("q_ptr", *codes, *scales, "out_ptr", *parts, *_STRIDES),
        architectures=architectures,
        **options,
    )


COMPILATIONS = (
    *(
        _compilation(kind, rows, splits, size)
        for kind in _CODE_TYPES
        for rows, splits in ((ROUND_ROWS, 64), (PREFILL_ROWS, 1))
        for size in _MACHINES
    ),
    Compilation(
        name="attention_join",
        kernel=join_kernel,
        signature={
            **dict.fromkeys(("parts_ptr", "stats_ptr"), "*fp32"),
            **dict.fromkeys(("base_ptr", "columns_ptr"), "*i32"),
            "out_ptr": "*bf16",
            "W": "i32",
        },
        constants=_join_constants(24, 256, 64, 32),
        divisible=("parts_ptr", "stats_ptr", "out_ptr"),
        max_registers=64,
    ),
)
