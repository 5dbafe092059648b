"""Triton kernel of `embedding`."""

# Triton's types are not Python's: a constexpr parameter takes a number, launches take options.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAssignmentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ninfer_kernels.compilation import Compilation
from ninfer_kernels.launch import ceil_div
from ninfer_kernels.linear.matrix import FORMATS, Matrix
from ninfer_kernels.linear.tile import (
    FORMAT_IDS,
    TILE_K,
    decode_tile,
    plane_pointers,
    plane_signature,
)

_NUM_WARPS = 1


@triton.jit
def embed_rows(
    ids_ptr, w_ptr, h_ptr, s_ptr, y_ptr, N, K, y_stride,
    FORMAT: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """y[t, k] = W[ids[t], k] for one t and BK values k."""
    i_t, i_k = tl.program_id(0), tl.program_id(1)
    # A wrong id is an error of the caller; here it must at least not read foreign memory.
    i_row = tl.minimum(tl.maximum(tl.load(ids_ptr + i_t).to(tl.int64), 0), N - 1)
    o_n = i_row + tl.zeros((1,), tl.int64)
    o_k = i_k * BK + tl.arange(0, BK)
    b_values = decode_tile(w_ptr, h_ptr, s_ptr, o_n, i_k * BK, K, FORMAT, BK, EVEN)
    p_y = y_ptr + i_t.to(tl.int64) * y_stride + o_k[None, :]
    tl.store(p_y, b_values.to(y_ptr.dtype.element_ty), mask=(o_k < K)[None, :])


def launch_embedding(ids: torch.Tensor, matrix: Matrix, out: torch.Tensor) -> None:
    """Write the rows `ids` of `matrix` to out [T, K]."""
    w, h, s = plane_pointers(matrix)
    tile = TILE_K[matrix.format]
    embed_rows[(ids.shape[0], ceil_div(matrix.columns, tile))](
        ids, w, h, s, out, matrix.rows, matrix.columns, out.stride(0),
        FORMAT=FORMAT_IDS[matrix.format], BK=tile, EVEN=matrix.columns % tile == 0,
        num_warps=_NUM_WARPS,
    )  # fmt: skip


def _compilation(format: str) -> Compilation:
    whole = dict.fromkeys(("N", "K", "y_stride"), "i32")
    signature = {"ids_ptr": "*i32", **plane_signature(format), "y_ptr": "*bf16", **whole}
    return Compilation(
        name=f"embed_rows {format}",
        kernel=embed_rows,
        signature=signature,
        constants={"FORMAT": FORMAT_IDS[format], "BK": TILE_K[format], "EVEN": True},
        divisible=tuple(signature),
        num_warps=_NUM_WARPS,
    )


COMPILATIONS: tuple[Compilation, ...] = tuple(_compilation(format) for format in FORMATS)
