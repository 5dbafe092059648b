"""Triton kernel of `swiglu`."""

# Triton's types are not Python's: a constexpr parameter takes a number, launches take options.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAssignmentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation
from ninfer_kernels.launch import ceil_div

_BLOCK = 1024


@triton.jit
def silu(b_gate):
    """Return g * sigmoid(g) of float32 values; 0 for very negative g, never NaN for finite g."""
    return b_gate / (1.0 + tl.exp(-b_gate))


@triton.jit
def swiglu_rows(
    gate_ptr, up_ptr, y_ptr, columns, gate_stride, up_stride, y_stride, B: tl.constexpr
):
    """y[t, i] = g * sigmoid(g) * u for one row t and B columns i."""
    i_t, i_b = tl.program_id(0).to(tl.int64), tl.program_id(1)
    o_i = i_b * B + tl.arange(0, B)
    m_i = o_i < columns
    b_gate = tl.load(gate_ptr + i_t * gate_stride + o_i, mask=m_i, other=0.0).to(tl.float32)
    b_up = tl.load(up_ptr + i_t * up_stride + o_i, mask=m_i, other=0.0).to(tl.float32)
    b_y = silu(b_gate) * b_up
    tl.store(y_ptr + i_t * y_stride + o_i, b_y.to(y_ptr.dtype.element_ty), mask=m_i)


def launch_swiglu(gate: torch.Tensor, up: torch.Tensor, out: torch.Tensor) -> None:
    """Write swiglu of gate and up [T, I] to out [T, I]."""
    tokens, columns = gate.shape
    swiglu_rows[(tokens, ceil_div(columns, _BLOCK))](
        gate, up, out, columns, gate.stride(0), up.stride(0), out.stride(0), B=_BLOCK
    )


_SIGNATURE = {
    **dict.fromkeys(("gate_ptr", "up_ptr", "y_ptr"), "*bf16"),
    **dict.fromkeys(("columns", "gate_stride", "up_stride", "y_stride"), "i32"),
}

COMPILATIONS: tuple[Compilation, ...] = (
    Compilation("swiglu_rows", swiglu_rows, _SIGNATURE, {"B": _BLOCK}, divisible=tuple(_SIGNATURE)),
)
