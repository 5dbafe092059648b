"""Sigmoid gate on the GPU: elementwise over rows of (token, head)."""

# Triton rewrites jit bodies and their calls; a type checker cannot follow.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation
from ninfer_kernels.launch import ceil_div

BLOCK_ROWS = 4


@triton.jit
def sigmoid_gate_kernel(
    x_ptr,
    gate_ptr,
    out_ptr,
    rows,
    x_token_stride,
    x_head_stride,
    gate_token_stride,
    gate_head_stride,
    H: tl.constexpr,
    D: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """out = x * sigmoid(gate)."""
    o_row = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)).to(tl.int64)
    o_token, o_head = o_row // H, o_row % H
    o_d = tl.arange(0, BLOCK_D)
    mask = (o_row < rows)[:, None] & (o_d < D)[None, :]
    p_x = x_ptr + (o_token * x_token_stride + o_head * x_head_stride)[:, None] + o_d[None, :]
    p_gate = gate_ptr + (o_token * gate_token_stride + o_head * gate_head_stride)[:, None]
    b_x = tl.load(p_x, mask=mask, other=0.0).to(tl.float32)
    b_gate = tl.load(p_gate + o_d[None, :], mask=mask, other=0.0).to(tl.float32)
    b_out = b_x / (1.0 + tl.exp(-b_gate))
    tl.store(out_ptr + o_row[:, None] * D + o_d[None, :], b_out, mask=mask)


def launch(attended: torch.Tensor, gate: torch.Tensor, out: torch.Tensor) -> None:
    """Gate attended [T, H, D]."""
    tokens, heads, size = attended.shape
    rows = tokens * heads
    if rows == 0:
        return
    sigmoid_gate_kernel[(ceil_div(rows, BLOCK_ROWS),)](
        attended,
        gate,
        out,
        rows,
        *attended.stride()[:2],
        *gate.stride()[:2],
        **_constants(heads, size),
    )


def _constants(heads: int, size: int) -> dict[str, Any]:
    block = triton.next_power_of_2(size)
    return {"H": heads, "D": size, "BLOCK_ROWS": BLOCK_ROWS, "BLOCK_D": block}


_POINTERS = ("x_ptr", "gate_ptr", "out_ptr")
_STRIDES = ("x_token_stride", "x_head_stride", "gate_token_stride", "gate_head_stride")

COMPILATIONS = (
    Compilation(
        name="sigmoid_gate_24x256",
        kernel=sigmoid_gate_kernel,
        signature={
            **dict.fromkeys(_POINTERS, "*bf16"),
            "rows": "i32",
            **dict.fromkeys(_STRIDES, "i32"),
        },
        constants=_constants(24, 256),
        divisible=(*_POINTERS, *_STRIDES),
        max_registers=64,
    ),
)
