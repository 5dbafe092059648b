"""Appending to the paged cache and copying its pages on the GPU."""

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
from ninfer_kernels.kv_codec.tile import KIND_IDS, encode_tile
from ninfer_kernels.launch import ceil_div

BLOCK_HEADS = 4
COPY_BLOCK = 4096


@triton.jit
def append_kernel(
    keys_ptr,
    values_ptr,
    key_codes_ptr,
    value_codes_ptr,
    key_scales_ptr,
    value_scales_ptr,
    block_table_ptr,
    base_ptr,
    columns_ptr,
    max_pages,
    key_lane_stride,
    key_column_stride,
    key_head_stride,
    value_lane_stride,
    value_column_stride,
    value_head_stride,
    HK: tl.constexpr,
    D: tl.constexpr,
    KIND: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Encode and store a few heads of one (column, lane); the third axis is keys, then values."""
    HEAD_BLOCKS: tl.constexpr = (HK + BLOCK_HEADS - 1) // BLOCK_HEADS
    i_column, i_lane = tl.program_id(0), tl.program_id(1)
    i_block = tl.program_id(2)
    if i_column >= tl.load(columns_ptr + i_lane):
        return
    i_token = tl.load(base_ptr + i_lane) + i_column
    i_entry = i_token // PAGE
    if i_entry >= max_pages:
        return
    i_page = tl.load(block_table_ptr + i_lane * max_pages + i_entry).to(tl.int64)
    if i_page < 0:
        return
    i_lane, i_column = i_lane.to(tl.int64), i_column.to(tl.int64)
    o_h = (i_block % HEAD_BLOCKS) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    o_row = (i_page * HK + o_h) * PAGE + i_token % PAGE
    if i_block < HEAD_BLOCKS:
        p_x = keys_ptr + i_lane * key_lane_stride + i_column * key_column_stride
        p_x += o_h * key_head_stride
        _store_rows(p_x, key_codes_ptr, key_scales_ptr, o_row, o_h < HK, D, KIND, BLOCK_D)
    else:
        p_x = values_ptr + i_lane * value_lane_stride + i_column * value_column_stride
        p_x += o_h * value_head_stride
        _store_rows(p_x, value_codes_ptr, value_scales_ptr, o_row, o_h < HK, D, KIND, BLOCK_D)


@triton.jit
def _store_rows(
    p_x, codes_ptr, scales_ptr, o_row, m_h, D: tl.constexpr, KIND: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    o_d = tl.arange(0, BLOCK_D)
    mask = m_h[:, None] & (o_d < D)[None, :]
    b_x = tl.load(p_x[:, None] + o_d[None, :], mask=mask, other=0.0).to(tl.float32)
    p_codes = codes_ptr + o_row[:, None] * D + o_d[None, :]
    if KIND == 0:
        tl.store(p_codes, b_x, mask=mask)
    else:
        b_codes, b_scale = encode_tile(b_x, KIND)
        tl.store(p_codes, b_codes, mask=mask)
        tl.store(scales_ptr + o_row, b_scale, mask=m_h)


@triton.jit
def copy_kernel(plane_ptr, sources_ptr, targets_ptr, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """Copy WORDS 32-bit words of page sources[i] over page targets[i]; negative pages skip."""
    i_pair = tl.program_id(1)
    i_source = tl.load(sources_ptr + i_pair).to(tl.int64)
    i_target = tl.load(targets_ptr + i_pair).to(tl.int64)
    if (i_source >= 0) & (i_target >= 0):
        o_w = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        b_words = tl.load(plane_ptr + i_source * WORDS + o_w, mask=o_w < WORDS)
        tl.store(plane_ptr + i_target * WORDS + o_w, b_words, mask=o_w < WORDS)


def launch_append(
    keys: torch.Tensor,
    values: torch.Tensor,
    cache: KVPages,
    block_table: torch.Tensor,
    base: torch.Tensor,
    columns: torch.Tensor,
) -> None:
    """Write the real columns of keys and values [L, W, Hkv, D]."""
    lanes, width, heads, size = keys.shape
    if lanes == 0 or width == 0:
        return
    key_scales, value_scales = cache.key_scales, cache.value_scales
    append_kernel[(width, lanes, 2 * ceil_div(heads, BLOCK_HEADS))](
        keys,
        values,
        cache.keys,
        cache.values,
        cache.keys if key_scales is None else key_scales,
        cache.values if value_scales is None else value_scales,
        block_table,
        base,
        columns,
        block_table.shape[1],
        *keys.stride()[:3],
        *values.stride()[:3],
        **_append_constants(cache.kind, heads, size),
    )


def launch_copy(cache: KVPages, sources: torch.Tensor, targets: torch.Tensor) -> None:
    """Copy the pages of every plane; a page is a whole number of 32-bit words (64 tokens)."""
    pairs = sources.shape[0]
    if pairs == 0:
        return
    for plane in cache.planes:
        page_words = plane.view(torch.uint8).view(torch.int32).view(plane.shape[0], -1)
        words = page_words.shape[1]
        constants: dict[str, Any] = {"WORDS": words, "BLOCK": COPY_BLOCK}
        copy_kernel[(ceil_div(words, COPY_BLOCK), pairs)](page_words, sources, targets, **constants)


def _append_constants(kind: str, heads: int, size: int) -> dict[str, Any]:
    return {
        "HK": heads,
        "D": size,
        "KIND": KIND_IDS[kind],
        "PAGE": PAGE_TOKENS,
        "BLOCK_HEADS": BLOCK_HEADS,
        "BLOCK_D": triton.next_power_of_2(size),
    }


_STRIDES = (
    "key_lane_stride",
    "key_column_stride",
    "key_head_stride",
    "value_lane_stride",
    "value_column_stride",
    "value_head_stride",
)
_CODE_TYPES = {"bf16": "*bf16", "fp8": "*u8", "int8": "*i8"}


def _append_compilation(kind: str) -> Compilation:
    codes = dict.fromkeys(("key_codes_ptr", "value_codes_ptr"), _CODE_TYPES[kind])
    scales = _CODE_TYPES[kind] if kind == "bf16" else "*fp16"
    inputs = dict.fromkeys(("keys_ptr", "values_ptr"), "*bf16")
    pointers = inputs | codes | dict.fromkeys(("key_scales_ptr", "value_scales_ptr"), scales)
    tables = dict.fromkeys(("block_table_ptr", "base_ptr", "columns_ptr"), "*i32")
    return Compilation(
        name=f"append_kv_{kind}",
        kernel=append_kernel,
        signature={**pointers, **tables, "max_pages": "i32", **dict.fromkeys(_STRIDES, "i32")},
        constants=_append_constants(kind, 4, 256),
        divisible=(*pointers, *_STRIDES),
        max_registers=128,
    )


COMPILATIONS = (
    *(_append_compilation(kind) for kind in _CODE_TYPES),
    Compilation(
        name="copy_pages",
        kernel=copy_kernel,
        signature={"plane_ptr": "*i32", "sources_ptr": "*i32", "targets_ptr": "*i32"},
        constants={"WORDS": 4 * 64 * 256 // 2, "BLOCK": COPY_BLOCK},
        divisible=("plane_ptr",),
        max_registers=64,
    ),
)
