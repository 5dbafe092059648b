"""Vision attention on the GPU: query blocks of one frame against all keys of that frame."""

# Triton rewrites jit bodies and their calls; a type checker cannot follow.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation
from ninfer_kernels.launch import ceil_div

LOG2_E = 1.4426950408889634
QUERIES = 64
KEYS = {torch.bfloat16: 64, torch.float32: 32}


@triton.jit
def vision_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    boundaries_ptr,
    out_ptr,
    scale,
    q_token_stride,
    q_head_stride,
    k_token_stride,
    k_head_stride,
    v_token_stride,
    v_head_stride,
    H: tl.constexpr,
    D: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """out = softmax(scale q k) v for QUERIES rows of one frame and head; BLOCK_D pads D."""
    i_block, i_head, i_frame = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i_begin = tl.load(boundaries_ptr + i_frame)
    i_end = tl.load(boundaries_ptr + i_frame + 1)
    o_q = i_begin + i_block * QUERIES + tl.arange(0, QUERIES)
    if i_begin + i_block * QUERIES < i_end:
        o_d = tl.arange(0, BLOCK_D)
        m_d = o_d < D
        m_q = (o_q < i_end)[:, None] & m_d[None, :]
        p_q = q_ptr + (o_q.to(tl.int64) * q_token_stride + i_head * q_head_stride)[:, None]
        b_q = tl.load(p_q + o_d[None, :], mask=m_q, other=0.0)
        b_highest = tl.full((QUERIES,), -1.0e30, tl.float32)
        b_total = tl.zeros((QUERIES,), tl.float32)
        b_acc = tl.zeros((QUERIES, BLOCK_D), tl.float32)
        for i_key in range(i_begin, i_end, KEYS):
            o_k = i_key + tl.arange(0, KEYS)
            m_k = o_k < i_end
            p_k = k_ptr + (o_k.to(tl.int64) * k_token_stride + i_head * k_head_stride)[None, :]
            b_k = tl.load(p_k + o_d[:, None], mask=m_k[None, :] & m_d[:, None], other=0.0)
            b_score = tl.dot(b_q, b_k, input_precision="ieee") * scale
            b_score = tl.where(m_k[None, :], b_score, float("-inf"))
            b_top = tl.maximum(b_highest, tl.max(b_score, 1))
            b_weight = tl.exp2(b_score - b_top[:, None])
            b_kept = tl.exp2(b_highest - b_top)
            b_highest = b_top
            b_total = b_total * b_kept + tl.sum(b_weight, 1)
            p_v = v_ptr + (o_k.to(tl.int64) * v_token_stride + i_head * v_head_stride)[:, None]
            b_v = tl.load(p_v + o_d[None, :], mask=m_k[:, None] & m_d[None, :], other=0.0)
            b_acc = b_acc * b_kept[:, None]
            b_acc = tl.dot(b_weight.to(b_q.dtype), b_v, b_acc, input_precision="ieee")
        p_out = out_ptr + ((o_q.to(tl.int64) * H + i_head) * D)[:, None] + o_d[None, :]
        tl.store(p_out, b_acc / b_total[:, None], mask=m_q)


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    boundaries: torch.Tensor,
    scale: float,
    longest: int,
    out: torch.Tensor,
) -> None:
    """Attend q [T, H, D] frame by frame."""
    _, heads, size = q.shape
    frames = boundaries.shape[0] - 1
    vision_attention_kernel[(ceil_div(longest, QUERIES), heads, frames)](
        q,
        k,
        v,
        boundaries,
        out,
        scale * LOG2_E,
        *q.stride()[:2],
        *k.stride()[:2],
        *v.stride()[:2],
        **_constants(heads, size, q.dtype),
        **_options(size),
    )


def _constants(heads: int, size: int, dtype: torch.dtype) -> dict[str, Any]:
    return {
        "H": heads,
        "D": size,
        "QUERIES": QUERIES,
        "KEYS": KEYS[dtype],
        "BLOCK_D": max(16, triton.next_power_of_2(size)),
    }


def _options(size: int) -> dict[str, Any]:
    # A padded head of 128 needs the registers of eight warps.
    return {"num_warps": 8 if size > 64 else 4}


_POINTERS = ("q_ptr", "k_ptr", "v_ptr", "out_ptr")
_STRIDES = (
    "q_token_stride",
    "q_head_stride",
    "k_token_stride",
    "k_head_stride",
    "v_token_stride",
    "v_head_stride",
)

COMPILATIONS = tuple(
    Compilation(
        name=f"vision_attention_{heads}x{size}",
        kernel=vision_attention_kernel,
        signature={
            "q_ptr": "*bf16",
            "k_ptr": "*bf16",
            "v_ptr": "*bf16",
            "boundaries_ptr": "*i32",
            "out_ptr": "*bf16",
            "scale": "fp32",
            **dict.fromkeys(_STRIDES, "i32"),
        },
        constants=_constants(heads, size, torch.bfloat16),
        # Heads of 72 numbers start at multiples of 8 only: head strides are not divisible.
        divisible=(*_POINTERS, "q_token_stride", "k_token_stride", "v_token_stride"),
        **_options(size),
    )
    for heads, size in ((16, 72), (16, 64))
)
