"""Rotary embedding on the GPU: one program for a few heads of one token."""

# Triton rewrites jit bodies and their calls; a type checker cannot follow.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAssignmentType=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation
from ninfer_kernels.launch import ceil_div
from ninfer_kernels.rope.rotation import Rotation

BLOCK_HEADS = 4


@triton.jit
def rope_kernel(
    q_ptr,
    k_ptr,
    q_weight_ptr,
    k_weight_ptr,
    positions_ptr,
    frequencies_ptr,
    axes_ptr,
    q_out_ptr,
    k_out_ptr,
    position_stride,
    q_token_stride,
    q_head_stride,
    k_token_stride,
    k_head_stride,
    q_out_token_stride,
    q_out_head_stride,
    k_out_token_stride,
    k_out_head_stride,
    eps,
    factor,
    HQ: tl.constexpr,
    HK: tl.constexpr,
    D: tl.constexpr,
    HALF: tl.constexpr,
    NORM: tl.constexpr,
    OFFSET: tl.constexpr,
    ROUND: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_REST: tl.constexpr,
):
    """Normalise (NORM) and turn the heads of one token: blocks of q first, blocks of k after."""
    i_token = tl.program_id(0).to(tl.int64)
    i_block = tl.program_id(1)
    o_j = tl.arange(0, BLOCK_HALF)
    b_axis = tl.load(axes_ptr + o_j, mask=o_j < HALF, other=0)
    p_step = positions_ptr + b_axis.to(tl.int64) * position_stride + i_token
    b_step = tl.load(p_step, mask=o_j < HALF, other=0).to(tl.float32)
    b_angle = b_step * tl.load(frequencies_ptr + o_j, mask=o_j < HALF, other=0.0)
    b_cos, b_sin = _cos_sin(b_angle)
    b_cos, b_sin = b_cos * factor, b_sin * factor
    if ROUND:
        b_cos = b_cos.to(q_ptr.dtype.element_ty).to(tl.float32)
        b_sin = b_sin.to(q_ptr.dtype.element_ty).to(tl.float32)
    Q_BLOCKS: tl.constexpr = (HQ + BLOCK_HEADS - 1) // BLOCK_HEADS
    if i_block < Q_BLOCKS:
        o_h = i_block * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
        p_x = q_ptr + i_token * q_token_stride + o_h * q_head_stride
        p_out = q_out_ptr + i_token * q_out_token_stride + o_h * q_out_head_stride
        _turn(
            p_x, q_weight_ptr, p_out, o_h < HQ, b_cos, b_sin, eps,
            D, HALF, NORM, OFFSET, BLOCK_HALF, BLOCK_REST,
        )  # fmt: skip
    else:
        o_h = (i_block - Q_BLOCKS) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
        p_x = k_ptr + i_token * k_token_stride + o_h * k_head_stride
        p_out = k_out_ptr + i_token * k_out_token_stride + o_h * k_out_head_stride
        _turn(
            p_x, k_weight_ptr, p_out, o_h < HK, b_cos, b_sin, eps,
            D, HALF, NORM, OFFSET, BLOCK_HALF, BLOCK_REST,
        )  # fmt: skip


@triton.jit
def _cos_sin(b_angle):
    """Return cos and sin of fp32 angles of any size, each within 2^-23.

    An fp32 angle of 2^18 radians cannot be reduced in fp32, and the library's general cosine
    keeps a stack for that case: the reduction to +-pi/4 is done in fp64, for a handful of
    numbers, and two short polynomials (Cephes, single precision) do the rest.
    """
    b_wide = b_angle.to(tl.float64)
    b_quarters = tl.floor(b_wide * 0.6366197723675814 + 0.5)
    b_x = (b_wide - b_quarters * 1.5707963267948966).to(tl.float32)
    b_z = b_x * b_x
    b_even = 4.166664568298827e-2 + b_z * (-1.388731625493765e-3 + b_z * 2.443315711809948e-5)
    b_even = 1.0 - 0.5 * b_z + b_z * b_z * b_even
    b_odd = -1.6666654611e-1 + b_z * (8.3321608736e-3 + b_z * -1.9515295891e-4)
    b_odd = b_x + b_x * b_z * b_odd
    b_quadrant = b_quarters.to(tl.int32)
    b_cos = tl.where((b_quadrant & 1) != 0, b_odd, b_even)
    b_sin = tl.where((b_quadrant & 1) != 0, b_even, b_odd)
    b_cos = tl.where(((b_quadrant + 1) & 2) != 0, -b_cos, b_cos)
    return b_cos, tl.where((b_quadrant & 2) != 0, -b_sin, b_sin)


@triton.jit
def _turn(
    p_x, weight_ptr, p_out, m_h, b_cos, b_sin, eps,
    D: tl.constexpr, HALF: tl.constexpr, NORM: tl.constexpr, OFFSET: tl.constexpr,
    BLOCK_HALF: tl.constexpr, BLOCK_REST: tl.constexpr,
):  # fmt: skip
    """Read whole heads before writing them, so that the output may be the input."""
    REST: tl.constexpr = D - 2 * HALF
    o_j = tl.arange(0, BLOCK_HALF)
    o_r = tl.arange(0, BLOCK_REST)
    mask = m_h[:, None] & (o_j < HALF)[None, :]
    m_rest = m_h[:, None] & (o_r < REST)[None, :]
    p_first, p_rest = p_x[:, None] + o_j[None, :], p_x[:, None] + 2 * HALF + o_r[None, :]
    b_first = tl.load(p_first, mask=mask, other=0.0).to(tl.float32)
    b_second = tl.load(p_first + HALF, mask=mask, other=0.0).to(tl.float32)
    b_rest = tl.zeros((m_h.shape[0], BLOCK_REST), tl.float32)
    if REST > 0:
        b_rest = tl.load(p_rest, mask=m_rest, other=0.0).to(tl.float32)
    if NORM:
        b_squares = tl.sum(b_first * b_first + b_second * b_second, 1)
        b_scale = tl.rsqrt((b_squares + tl.sum(b_rest * b_rest, 1)) / D + eps)[:, None]
        b_first *= b_scale * _gain(weight_ptr + o_j, o_j < HALF, OFFSET)
        b_second *= b_scale * _gain(weight_ptr + HALF + o_j, o_j < HALF, OFFSET)
        b_rest *= b_scale * _gain(weight_ptr + 2 * HALF + o_r, o_r < REST, OFFSET)
    b_cos, b_sin = b_cos[None, :], b_sin[None, :]
    p_first, p_rest = p_out[:, None] + o_j[None, :], p_out[:, None] + 2 * HALF + o_r[None, :]
    tl.store(p_first, b_first * b_cos - b_second * b_sin, mask=mask)
    tl.store(p_first + HALF, b_second * b_cos + b_first * b_sin, mask=mask)
    if REST > 0:
        tl.store(p_rest, b_rest, mask=m_rest)


@triton.jit
def _gain(p_weight, mask, OFFSET: tl.constexpr):
    b_gain = tl.load(p_weight, mask=mask, other=0.0).to(tl.float32)
    if OFFSET:
        b_gain += 1.0
    return b_gain[None, :]


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    weights: tuple[torch.Tensor, torch.Tensor] | None,
    positions: torch.Tensor,
    rotation: Rotation,
    eps: float,
    offset: bool,
    q_out: torch.Tensor,
    k_out: torch.Tensor,
) -> None:
    """Turn q and k [T, H, D], normalised first when there are weights."""
    tokens, q_heads, size = q.shape
    if tokens == 0:
        return
    q_weight, k_weight = weights if weights is not None else (q, k)
    blocks = ceil_div(q_heads, BLOCK_HEADS) + ceil_div(k.shape[1], BLOCK_HEADS)
    constants = _constants(q_heads, k.shape[1], size, rotation.dimensions // 2)
    constants |= {"NORM": weights is not None, "OFFSET": offset, "ROUND": rotation.rounds_table}
    rope_kernel[(tokens, blocks)](
        q,
        k,
        q_weight,
        k_weight,
        positions,
        rotation.inverse_frequencies,
        rotation.axes,
        q_out,
        k_out,
        positions.stride(0),
        *q.stride()[:2],
        *k.stride()[:2],
        *q_out.stride()[:2],
        *k_out.stride()[:2],
        eps,
        rotation.attention_factor,
        **constants,
    )


def _constants(q_heads: int, kv_heads: int, size: int, half: int) -> dict[str, Any]:
    return {
        "HQ": q_heads,
        "HK": kv_heads,
        "D": size,
        "HALF": half,
        "BLOCK_HEADS": BLOCK_HEADS,
        "BLOCK_HALF": triton.next_power_of_2(half),
        "BLOCK_REST": triton.next_power_of_2(max(1, size - 2 * half)),
    }


_POINTERS = ("q_ptr", "k_ptr", "q_weight_ptr", "k_weight_ptr")
_STRIDES = (
    "q_token_stride",
    "q_head_stride",
    "k_token_stride",
    "k_head_stride",
    "q_out_token_stride",
    "q_out_head_stride",
    "k_out_token_stride",
    "k_out_head_stride",
)
_SIGNATURE = {
    **dict.fromkeys(_POINTERS, "*bf16"),
    "positions_ptr": "*i32",
    "frequencies_ptr": "*fp32",
    "axes_ptr": "*i32",
    "q_out_ptr": "*bf16",
    "k_out_ptr": "*bf16",
    "position_stride": "i32",
    **dict.fromkeys(_STRIDES, "i32"),
    "eps": "fp32",
    "factor": "fp32",
}


def _compilation(name: str, q_heads: int, kv_heads: int, size: int, half: int) -> Compilation:
    text = kv_heads < q_heads
    flags = {"NORM": text, "OFFSET": text, "ROUND": text}
    return Compilation(
        name=name,
        kernel=rope_kernel,
        signature=_SIGNATURE,
        constants=_constants(q_heads, kv_heads, size, half) | flags,
        divisible=(*_POINTERS, "q_out_ptr", "k_out_ptr", *_STRIDES),
        max_registers=128,
    )


COMPILATIONS = (
    _compilation("rope_text_24_4_256", 24, 4, 256, 32),
    _compilation("rope_vision_16_72", 16, 16, 72, 36),
)
