"""Causal convolution in Triton. Sizes: C channels, W columns of a round, T of a chunk."""

# Triton rewrites jit bodies and their calls; a type checker cannot follow.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAssignmentType=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation

BLOCK_C = 128
BLOCK_T = 16


@triton.jit
def _silu(x):
    return x * (1.0 / (1.0 + tl.exp(-x)))


@triton.jit
def round_kernel(
    mixed_ptr,
    weight_ptr,
    window_ptr,
    slots_ptr,
    columns_ptr,
    base_ptr,
    out_ptr,
    C,
    W,
    WINDOW,
    stride_lane,
    stride_column,
    BLOCK: tl.constexpr,
):
    i_l = tl.program_id(1)
    o_c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m_c = o_c < C
    n_columns = tl.load(columns_ptr + i_l)
    p_out = out_ptr + i_l.to(tl.int64) * W * C + o_c
    if n_columns > 0:
        i_s = tl.load(slots_ptr + i_l).to(tl.int64)
        base = tl.load(base_ptr + i_l)
        p_window = window_ptr + i_s * WINDOW * C + o_c
        p_mixed = mixed_ptr + i_l.to(tl.int64) * stride_lane + o_c
        b_w0 = tl.load(weight_ptr + o_c, m_c, 0.0).to(tl.float32)
        b_w1 = tl.load(weight_ptr + C + o_c, m_c, 0.0).to(tl.float32)
        b_w2 = tl.load(weight_ptr + 2 * C + o_c, m_c, 0.0).to(tl.float32)
        b_w3 = tl.load(weight_ptr + 3 * C + o_c, m_c, 0.0).to(tl.float32)
        # WINDOW is added because a remainder of a negative number would be negative.
        b_x0 = tl.load(p_window + (base + WINDOW - 3) % WINDOW * C, m_c & (base >= 3), 0.0)
        b_x1 = tl.load(p_window + (base + WINDOW - 2) % WINDOW * C, m_c & (base >= 2), 0.0)
        b_x2 = tl.load(p_window + (base + WINDOW - 1) % WINDOW * C, m_c & (base >= 1), 0.0)
        for i in range(n_columns):
            b_x3 = tl.load(p_mixed + i * stride_column, m_c, 0.0)
            b_y = b_w0 * b_x0.to(tl.float32) + b_w1 * b_x1.to(tl.float32)
            b_y += b_w2 * b_x2.to(tl.float32)
            b_y += b_w3 * b_x3.to(tl.float32)
            tl.store(p_out + i * C, _silu(b_y).to(out_ptr.dtype.element_ty), m_c)
            tl.store(p_window + (base + i) % WINDOW * C, b_x3, m_c)
            b_x0 = b_x1
            b_x1 = b_x2
            b_x2 = b_x3
    for i in range(n_columns, W):
        tl.store(p_out + i * C, tl.zeros((BLOCK,), out_ptr.dtype.element_ty), m_c)


@triton.jit
def prefill_kernel(
    mixed_ptr,
    weight_ptr,
    window_ptr,
    slots_ptr,
    base_ptr,
    out_ptr,
    C,
    T,
    WINDOW,
    stride_column,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    o_c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    o_t = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    m_c = o_c < C
    i_s = tl.load(slots_ptr).to(tl.int64)
    base = tl.load(base_ptr)
    p_window = window_ptr + i_s * WINDOW * C + o_c[None, :]
    p_mixed = mixed_ptr + o_c[None, :]
    b_y = tl.zeros((ROWS, BLOCK), tl.float32)
    for tap in tl.static_range(4):
        # Columns before the chunk lie in the window.
        o_x = o_t + (tap - 3)
        m_new = ((o_x >= 0) & (o_x < T))[:, None] & m_c[None, :]
        m_old = ((o_x < 0) & (base + o_x >= 0))[:, None] & m_c[None, :]
        o_row = o_x.to(tl.int64)[:, None]
        b_x = tl.load(p_mixed + o_row * stride_column, m_new, 0.0).to(tl.float32)
        o_ring = ((base + o_x + WINDOW) % WINDOW)[:, None]
        b_x += tl.load(p_window + o_ring * C, m_old, 0.0).to(tl.float32)
        b_w = tl.load(weight_ptr + tap * C + o_c, m_c, 0.0).to(tl.float32)
        b_y += b_w[None, :] * b_x
    p_out = out_ptr + o_t.to(tl.int64)[:, None] * C + o_c[None, :]
    m_out = (o_t < T)[:, None] & m_c[None, :]
    tl.store(p_out, _silu(b_y).to(out_ptr.dtype.element_ty), m_out)


@triton.jit(do_not_specialize=["T"])
def tail_kernel(
    mixed_ptr,
    window_ptr,
    slots_ptr,
    base_ptr,
    C,
    T,
    WINDOW,
    stride_column,
    BLOCK: tl.constexpr,
):
    """Put the chunk's newest columns, three at most, into the ring; older ones are there."""
    o_c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m_c = o_c < C
    i_s = tl.load(slots_ptr).to(tl.int64)
    base = tl.load(base_ptr)
    for back in tl.static_range(1, 4):
        i = (T - back).to(tl.int64)
        m_x = m_c & (i >= 0)
        b_x = tl.load(mixed_ptr + i * stride_column + o_c, m_x, 0.0)
        tl.store(window_ptr + (i_s * WINDOW + (base + i) % WINDOW) * C + o_c, b_x, m_x)


def launch_round(
    mixed: torch.Tensor,
    weight: torch.Tensor,
    window: torch.Tensor,
    slots: torch.Tensor,
    columns: torch.Tensor,
    base: torch.Tensor,
    out: torch.Tensor,
) -> torch.Tensor:
    lanes, width, channels = mixed.shape
    round_kernel[(triton.cdiv(channels, BLOCK_C), lanes)](
        mixed,
        weight,
        window,
        slots,
        columns,
        base,
        out,
        channels,
        width,
        window.shape[1],
        mixed.stride(0),
        mixed.stride(1),
        BLOCK=BLOCK_C,
        num_warps=2,
    )
    return out


def launch_prefill(
    mixed: torch.Tensor,
    weight: torch.Tensor,
    window: torch.Tensor,
    slots: torch.Tensor,
    base: torch.Tensor,
    out: torch.Tensor,
) -> torch.Tensor:
    _, count, channels = mixed.shape
    blocks = triton.cdiv(channels, BLOCK_C)
    prefill_kernel[(blocks, triton.cdiv(count, BLOCK_T))](
        mixed,
        weight,
        window,
        slots,
        base,
        out,
        channels,
        count,
        window.shape[1],
        mixed.stride(1),
        ROWS=BLOCK_T,
        BLOCK=BLOCK_C,
        num_warps=4,
    )
    # A second launch: the first one's programs read the history that this one may overwrite.
    tail_kernel[(blocks,)](
        mixed,
        window,
        slots,
        base,
        channels,
        count,
        window.shape[1],
        mixed.stride(1),
        BLOCK=BLOCK_C,
        num_warps=2,
    )
    return out


def _compile(name: str, kernel: Any, dtype: str, **constants: int) -> Compilation:
    names = kernel.arg_names
    data = ("mixed_ptr", "weight_ptr", "window_ptr", "out_ptr")
    signature = {
        argument: f"*{dtype}" if argument in data else "*i32" if "_ptr" in argument else "i32"
        for argument in names
        if argument not in constants
    }
    divisible = tuple(a for a in signature if "_ptr" in a or a in ("C", "stride_column"))
    return Compilation(
        name=f"causal_conv_{name}_{dtype}",
        kernel=kernel,
        signature=signature,
        constants=constants,
        divisible=divisible,
        num_warps=4 if name == "prefill" else 2,
        max_registers=128,
    )


COMPILATIONS = tuple(
    compilation
    for dtype in ("bf16", "fp32")
    for compilation in (
        _compile("round", round_kernel, dtype, BLOCK=BLOCK_C),
        _compile("prefill", prefill_kernel, dtype, ROWS=BLOCK_T, BLOCK=BLOCK_C),
        _compile("tail", tail_kernel, dtype, BLOCK=BLOCK_C),
    )
)
