"""Layer normalisation on the GPU: one program a row."""

# Triton rewrites jit bodies and their calls; a type checker cannot follow.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation


@triton.jit
def layernorm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, x_stride, eps, C: tl.constexpr, BLOCK: tl.constexpr
):
    """out = (x - mean) / sqrt(var + eps) * weight + bias; the row stays in registers."""
    i_row = tl.program_id(0).to(tl.int64)
    o_c = tl.arange(0, BLOCK)
    mask = o_c < C
    b_x = tl.load(x_ptr + i_row * x_stride + o_c, mask=mask, other=0.0).to(tl.float32)
    b_centred = tl.where(mask, b_x - tl.sum(b_x, 0) / C, 0.0)
    scale = tl.rsqrt(tl.sum(b_centred * b_centred, 0) / C + eps)
    b_weight = tl.load(weight_ptr + o_c, mask=mask, other=0.0).to(tl.float32)
    b_bias = tl.load(bias_ptr + o_c, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + i_row * C + o_c, b_centred * scale * b_weight + b_bias, mask=mask)


def launch(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, out: torch.Tensor
) -> None:
    """Normalise x [..., C]."""
    width = x.shape[-1]
    rows = x.reshape(-1, width)
    if rows.shape[0] == 0:
        return
    constants: dict[str, Any] = {"C": width, "BLOCK": triton.next_power_of_2(width)}
    options: dict[str, Any] = {"num_warps": 8 if width > 2048 else 4}
    layernorm_kernel[(rows.shape[0],)](
        rows, weight, bias, out, rows.stride(0), eps, **constants, **options
    )


_POINTERS = ("x_ptr", "weight_ptr", "bias_ptr", "out_ptr")

COMPILATIONS = (
    Compilation(
        name="layernorm_1152",
        kernel=layernorm_kernel,
        signature={**dict.fromkeys(_POINTERS, "*bf16"), "x_stride": "i32", "eps": "fp32"},
        constants={"C": 1152, "BLOCK": 2048},
        divisible=(*_POINTERS, "x_stride"),
        max_registers=96,
    ),
)
