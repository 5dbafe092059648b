"""The definition of `linear` in plain torch, on any device."""

from __future__ import annotations

import torch

from ninfer_kernels.linear.decoding import decode_matrix
from ninfer_kernels.linear.matrix import FP32, Matrix

# Decoded values held at a time (16 MiB of float32), so that memory does not grow with N.
BLOCK_VALUES = 1 << 22


def linear_reference(
    x: torch.Tensor, matrix: Matrix, bias: torch.Tensor | None, out: torch.Tensor
) -> None:
    """Write y[t, n] = sum_k x[t, k] * W[n, k] (+ bias[n]) to out [T, N].

    float32 products and sums; one rounding to the type of `out`.
    """
    wide = x.float()
    step = max(1, BLOCK_VALUES // matrix.columns)
    if matrix.format == FP32:
        step = matrix.rows
    for begin in range(0, matrix.rows, step):
        end = min(matrix.rows, begin + step)
        product = wide @ decode_matrix(matrix, begin, end).T
        if bias is not None:
            product += bias[begin:end].float()
        out[:, begin:end] = product
