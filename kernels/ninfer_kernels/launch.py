"""Which implementation of an operation runs: the Triton kernel or the torch reference."""

from __future__ import annotations

import torch

REFERENCE = "reference"
TRITON = "triton"


def choose_backend(tensor: torch.Tensor, backend: str | None = None) -> str:
    """Return TRITON or REFERENCE.

    `backend` None picks TRITON for a CUDA tensor and REFERENCE for any other; naming one forces
    it, which is how kernels are tested in interpreter mode. Raises ValueError for other names.
    """
    if backend is None:
        return TRITON if tensor.is_cuda else REFERENCE
    if backend not in (REFERENCE, TRITON):
        raise ValueError(f"unknown backend: got {backend}, want {REFERENCE} or {TRITON}")
    return backend


def ceil_div(value: int, divisor: int) -> int:
    """Return the smallest integer that is not below value / divisor."""
    return -(-value // divisor)
