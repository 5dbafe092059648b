"""GELU on the GPU: elementwise."""

# Triton rewrites jit bodies and their calls; a type checker cannot follow.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation
from ninfer_kernels.launch import ceil_div

BLOCK = 1024


@triton.jit
def gelu_kernel(x_ptr, out_ptr, N, TANH: tl.constexpr, BLOCK: tl.constexpr):
    """out = gelu(x) over N elements."""
    o_n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    b_x = tl.load(x_ptr + o_n, mask=o_n < N, other=0.0).to(tl.float32)
    if TANH:
        # (1 + tanh u) / 2 = sigmoid(2u); 1.5957... = 2 sqrt(2 / pi)
        b_inner = 1.5957691216057308 * (b_x + 0.044715 * b_x * b_x * b_x)
        b_out = b_x / (1.0 + tl.exp(-b_inner))
    else:
        b_out = 0.5 * b_x * (1.0 + tl.erf(b_x * 0.7071067811865476))
    tl.store(out_ptr + o_n, b_out, mask=o_n < N)


def launch(x: torch.Tensor, kind: str, out: torch.Tensor) -> None:
    """Write gelu(x) to `out`, both contiguous."""
    count = x.numel()
    if count:
        constants: dict[str, Any] = {"TANH": kind == "tanh", "BLOCK": BLOCK}
        gelu_kernel[(ceil_div(count, BLOCK),)](x, out, count, **constants)


COMPILATIONS = tuple(
    Compilation(
        name=f"gelu_{kind}",
        kernel=gelu_kernel,
        signature={"x_ptr": "*bf16", "out_ptr": "*bf16", "N": "i32"},
        constants={"TANH": kind == "tanh", "BLOCK": BLOCK},
        divisible=("x_ptr", "out_ptr"),
        max_registers=64,
    )
    for kind in ("tanh", "erf")
)
