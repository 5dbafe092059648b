"""The definition of `embedding` in plain torch, on any device."""

from __future__ import annotations

import torch

from ninfer_kernels.linear.decoding import decode_matrix
from ninfer_kernels.linear.matrix import Matrix


def embedding_reference(ids: torch.Tensor, matrix: Matrix, out: torch.Tensor) -> None:
    """Write y[t] = W[ids[t]] to out [T, K]; one rounding to the type of `out`."""
    out.copy_(decode_matrix(matrix.gather_rows(ids)))
