"""RMS normalisation on the GPU: one program a row."""

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

# Widest tile of one program; wider rows are read in several tiles, twice.
MOST_BLOCK = 8192
# (token, head) pairs of one program of the gated norm.
GATED_ROWS = 4


@triton.jit
def rmsnorm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    sum_ptr,
    x_stride,
    residual_stride,
    eps,
    C: tl.constexpr,
    OFFSET: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = s / sqrt(mean(s^2) + eps) * gain; s = x, or with ADD round(x + residual) -> sum."""
    i_row = tl.program_id(0).to(tl.int64)
    p_x = x_ptr + i_row * x_stride
    p_residual = residual_ptr + i_row * residual_stride
    b_squares = tl.zeros((BLOCK,), tl.float32)
    b_value = tl.zeros((BLOCK,), tl.float32)
    for begin in tl.static_range(0, C, BLOCK):
        o_c = begin + tl.arange(0, BLOCK)
        b_value = _load(p_x, p_residual, o_c, C, ADD)
        b_squares += b_value * b_value
    scale = tl.rsqrt(tl.sum(b_squares, 0) / C + eps)
    for begin in tl.static_range(0, C, BLOCK):
        o_c = begin + tl.arange(0, BLOCK)
        if C > BLOCK:
            b_value = _load(p_x, p_residual, o_c, C, ADD)
        # The sum is stored only after its inputs were read for the last time: it may replace them.
        if ADD:
            tl.store(sum_ptr + i_row * C + o_c, b_value, mask=o_c < C)
        b_gain = tl.load(weight_ptr + o_c, mask=o_c < C, other=0.0).to(tl.float32)
        if OFFSET:
            b_gain += 1.0
        tl.store(out_ptr + i_row * C + o_c, b_value * scale * b_gain, mask=o_c < C)


@triton.jit
def _load(p_x, p_residual, o_c, C: tl.constexpr, ADD: tl.constexpr):
    b_x = tl.load(p_x + o_c, mask=o_c < C, other=0.0)
    b_value = b_x.to(tl.float32)
    if ADD:
        b_residual = tl.load(p_residual + o_c, mask=o_c < C, other=0.0).to(tl.float32)
        b_value = (b_value + b_residual).to(b_x.dtype).to(tl.float32)
    return b_value


@triton.jit
def gated_rmsnorm_kernel(
    x_ptr,
    gate_ptr,
    weight_ptr,
    out_ptr,
    rows,
    x_token_stride,
    x_head_stride,
    gate_token_stride,
    gate_head_stride,
    eps,
    H: tl.constexpr,
    D: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """out = round(round(x_hat) * weight) * silu(gate), rows being (token, head) pairs."""
    o_row = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)).to(tl.int64)
    o_token, o_head = o_row // H, o_row % H
    o_d = tl.arange(0, BLOCK_D)
    mask = (o_row < rows)[:, None] & (o_d < D)[None, :]
    o_x = o_token * x_token_stride + o_head * x_head_stride
    o_gate = o_token * gate_token_stride + o_head * gate_head_stride
    b_raw = tl.load(x_ptr + o_x[:, None] + o_d[None, :], mask=mask, other=0.0)
    b_x = b_raw.to(tl.float32)
    b_scale = tl.rsqrt(tl.sum(b_x * b_x, 1) / D + eps)
    b_weight = tl.load(weight_ptr + o_d, mask=o_d < D, other=0.0)
    # Multiplying in the promoted type is the rounding that the rule asks for.
    b_normal = (b_x * b_scale[:, None]).to(b_raw.dtype)
    b_scaled = (b_normal.to(tl.float32) * b_weight[None, :].to(tl.float32)).to(
        (b_normal * b_weight[None, :]).dtype
    )
    b_gate = tl.load(gate_ptr + o_gate[:, None] + o_d[None, :], mask=mask, other=0.0).to(tl.float32)
    b_out = b_scaled.to(tl.float32) * (b_gate / (1.0 + tl.exp(-b_gate)))
    tl.store(out_ptr + o_row[:, None] * D + o_d[None, :], b_out, mask=mask)


def launch(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    offset: bool,
    out: torch.Tensor,
    sum_out: torch.Tensor | None,
) -> None:
    """Normalise the rows of x [R, C]; with `residual`, of x + residual, kept in `sum_out`."""
    rows, width = x.shape
    if rows == 0:
        return
    add = residual is not None
    other = x if residual is None else residual
    block = min(MOST_BLOCK, triton.next_power_of_2(width))
    options: dict[str, Any] = {"num_warps": 8 if block > 2048 else 4}
    constants: dict[str, Any] = {"C": width, "OFFSET": offset, "ADD": add, "BLOCK": block}
    rmsnorm_kernel[(rows,)](
        x,
        other,
        weight,
        out,
        out if sum_out is None else sum_out,
        x.stride(0),
        other.stride(0),
        eps,
        **constants,
        **options,
    )


def launch_gated(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor
) -> None:
    """Normalise and gate x [T, H, D]."""
    tokens, heads, size = x.shape
    rows = tokens * heads
    if rows == 0:
        return
    constants: dict[str, Any] = {
        "H": heads,
        "D": size,
        "BLOCK_ROWS": GATED_ROWS,
        "BLOCK_D": triton.next_power_of_2(size),
    }
    gated_rmsnorm_kernel[(ceil_div(rows, GATED_ROWS),)](
        x,
        gate,
        weight,
        out,
        rows,
        x.stride(0),
        x.stride(1),
        gate.stride(0),
        gate.stride(1),
        eps,
        **constants,
    )


_ROW_ARGUMENTS = {
    "x_ptr": "*bf16",
    "residual_ptr": "*bf16",
    "weight_ptr": "*bf16",
    "out_ptr": "*bf16",
    "sum_ptr": "*bf16",
    "x_stride": "i32",
    "residual_stride": "i32",
    "eps": "fp32",
}

_GATED_ARGUMENTS = {
    "x_ptr": "*bf16",
    "gate_ptr": "*bf16",
    "weight_ptr": "*fp32",
    "out_ptr": "*bf16",
    "rows": "i32",
    "x_token_stride": "i32",
    "x_head_stride": "i32",
    "gate_token_stride": "i32",
    "gate_head_stride": "i32",
    "eps": "fp32",
}


def _row_compilation(width: int, add: bool) -> Compilation:
    return Compilation(
        name=f"rmsnorm_{width}{'_add' if add else ''}",
        kernel=rmsnorm_kernel,
        signature=_ROW_ARGUMENTS,
        constants={"C": width, "OFFSET": True, "ADD": add, "BLOCK": MOST_BLOCK},
        divisible=tuple(name for name in _ROW_ARGUMENTS if name != "eps"),
        num_warps=8,
        max_registers=128,
    )


COMPILATIONS = (
    _row_compilation(5120, add=False),
    _row_compilation(5120, add=True),
    Compilation(
        name="gated_rmsnorm_48x128",
        kernel=gated_rmsnorm_kernel,
        signature=_GATED_ARGUMENTS,
        constants={"H": 48, "D": 128, "BLOCK_ROWS": GATED_ROWS, "BLOCK_D": 128},
        divisible=tuple(name for name in _GATED_ARGUMENTS if name not in ("rows", "eps")),
        max_registers=64,
    ),
)
