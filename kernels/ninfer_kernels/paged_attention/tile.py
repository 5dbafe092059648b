"""The inner loop of paged attention and how keys are divided among splits."""

# Triton rewrites jit bodies and their calls; a type checker cannot follow.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false

from __future__ import annotations

import triton
import triton.language as tl

from ninfer_kernels.kv_codec.tile import decode_tile

# Stands for minus infinity where a difference of two of them must not be NaN.
LOWEST = tl.constexpr(-1.0e30)


@triton.jit
def keys_per_split(i_end, SPLITS: tl.constexpr, KEYS: tl.constexpr):
    """Return how many keys a split of i_end keys takes: a power of two times KEYS, >= 128.

    A power of two, so that one key more or less hardly ever moves the boundaries, and with them
    the order of summation.
    """
    b_tiles = tl.maximum((i_end + SPLITS * KEYS - 1) // (SPLITS * KEYS), (128 + KEYS - 1) // KEYS)
    b_tiles -= 1
    b_tiles |= b_tiles >> 1
    b_tiles |= b_tiles >> 2
    b_tiles |= b_tiles >> 4
    b_tiles |= b_tiles >> 8
    b_tiles |= b_tiles >> 16
    return (b_tiles + 1) * KEYS


@triton.jit
def attend(
    b_q, b_last, i_begin, i_end, i_kv, keys_ptr, values_ptr, key_scales_ptr, value_scales_ptr,
    p_table, scale,
    HK: tl.constexpr, D: tl.constexpr, KIND: tl.constexpr, PAGE: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Return (weighted values [ROWS, BLOCK_D], weights [ROWS], highest score [ROWS]), fp32.

    Row r of b_q sees keys i_begin..min(b_last[r] + 1, i_end); scores are in units of log2. KEYS
    divides PAGE, so that a tile lies in one page; i_begin is a multiple of KEYS.
    """
    o_d = tl.arange(0, BLOCK_D)
    b_highest = tl.full((ROWS,), LOWEST, tl.float32)
    b_total = tl.zeros((ROWS,), tl.float32)
    b_acc = tl.zeros((ROWS, BLOCK_D), tl.float32)
    for i_key in range(i_begin, i_end, KEYS):
        i_page = tl.load(p_table + i_key // PAGE).to(tl.int64)
        o_t = i_key + tl.arange(0, KEYS)
        m_t = (o_t < i_end) & (i_page >= 0)
        o_row = (i_page * HK + i_kv) * PAGE + o_t % PAGE
        m_k, m_v = m_t[None, :], m_t[:, None]
        if D < BLOCK_D:
            m_k, m_v = m_k & (o_d < D)[:, None], m_v & (o_d < D)[None, :]
        b_k = tl.load(keys_ptr + o_row[None, :] * D + o_d[:, None], mask=m_k, other=0)
        b_score = tl.dot(b_q, decode_tile(b_k, KIND, b_q.dtype), input_precision="ieee") * scale
        if KIND != 0:
            b_score *= tl.load(key_scales_ptr + o_row, mask=m_t, other=0.0).to(tl.float32)[None, :]
        m_seen = (o_t[None, :] <= b_last[:, None]) & m_t[None, :]
        b_score = tl.where(m_seen, b_score, float("-inf"))
        b_top = tl.maximum(b_highest, tl.max(b_score, 1))
        b_weight = tl.exp2(b_score - b_top[:, None])
        b_kept = tl.exp2(b_highest - b_top)
        b_highest = b_top
        b_total = b_total * b_kept + tl.sum(b_weight, 1)
        if KIND != 0:
            b_scale = tl.load(value_scales_ptr + o_row, mask=m_t, other=0.0).to(tl.float32)
            b_weight = tl.where(m_seen, b_weight * b_scale[None, :], 0.0)
        b_v = tl.load(values_ptr + o_row[:, None] * D + o_d[None, :], mask=m_v, other=0)
        b_v = decode_tile(b_v, KIND, b_q.dtype)
        b_acc = b_acc * b_kept[:, None]
        b_acc = tl.dot(b_weight.to(b_q.dtype), b_v, b_acc, input_precision="ieee")
    return b_acc, b_total, b_highest
