"""Rotary embedding: checks, the choice of implementation, the launch."""

from __future__ import annotations

import torch

from ninfer_kernels.launch import TRITON, choose_backend
from ninfer_kernels.rope import reference
from ninfer_kernels.rope.rotation import Rotation

_TYPES = (torch.float32, torch.bfloat16)


def normalise_and_rotate(
    q: torch.Tensor,
    k: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    positions: torch.Tensor,
    rotation: Rotation,
    *,
    eps: float,
    offset: bool = True,
    q_out: torch.Tensor | None = None,
    k_out: torch.Tensor | None = None,
    backend: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (rope(norm(q)), rope(norm(k))), normalised per head over D.

    q [T, Hq, D] and k [T, Hkv, D], both bf16 or both fp32, D contiguous, any stride along T and H
    (the q half of a [q | gate] projection is fine); weights [D] bf16 or fp32, gain 1 + weight with
    `offset`; positions int32 [A, T], one row per axis that the rotation names. Outputs are
    contiguous unless given, when any stride along T and H is taken; they may be q and k. fp32
    throughout, one rounding at the end. Rules N-23 to N-26. Raises ValueError.
    """
    for name, weight in (("q_weight", q_weight), ("k_weight", k_weight)):
        if weight.shape != q.shape[-1:] or weight.dtype not in _TYPES:
            raise ValueError(f"{name}: got {_describe(weight)}, want [{q.shape[-1]}] bf16 or fp32")
    q_out, k_out = _check(q, k, positions, rotation, q_out, k_out)
    if choose_backend(q, backend) == TRITON:
        from ninfer_kernels.rope import kernel

        weights = (q_weight, k_weight)
        kernel.launch(q, k, weights, positions, rotation, eps, offset, q_out, k_out)
        return q_out, k_out
    cos, sin = reference.rotary_table(positions, rotation, q.dtype)
    for x, weight, out in ((q, q_weight, q_out), (k, k_weight, k_out)):
        out.copy_(reference.rotate(reference.normalise(x, weight, eps, offset), cos, sin))
    return q_out, k_out


def rotate(
    q: torch.Tensor,
    k: torch.Tensor,
    positions: torch.Tensor,
    rotation: Rotation,
    *,
    q_out: torch.Tensor | None = None,
    k_out: torch.Tensor | None = None,
    backend: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (rope(q), rope(k)) without a norm, as the vision tower wants it.

    Shapes, types and errors as in `normalise_and_rotate`; for vision, positions int32 [2, T]
    hold the row and the column of every patch.
    """
    q_out, k_out = _check(q, k, positions, rotation, q_out, k_out)
    if choose_backend(q, backend) == TRITON:
        from ninfer_kernels.rope import kernel

        kernel.launch(q, k, None, positions, rotation, 0.0, False, q_out, k_out)
        return q_out, k_out
    cos, sin = reference.rotary_table(positions, rotation, q.dtype)
    for x, out in ((q, q_out), (k, k_out)):
        out.copy_(reference.rotate(x.float(), cos, sin))
    return q_out, k_out


def _check(
    q: torch.Tensor,
    k: torch.Tensor,
    positions: torch.Tensor,
    rotation: Rotation,
    q_out: torch.Tensor | None,
    k_out: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    if q.ndim != 3 or q.dtype not in _TYPES or q.stride(-1) != 1:
        raise ValueError(f"q: got {_describe(q)}, want [T, Hq, D] bf16 or fp32, D contiguous")
    tokens, _, width = q.shape
    if k.ndim != 3 or k.dtype != q.dtype or k.stride(-1) != 1 or k.shape[::2] != q.shape[::2]:
        raise ValueError(f"k: got {_describe(k)}, want [{tokens}, Hkv, {width}] like q")
    if positions.ndim != 2 or positions.shape[1] != tokens or positions.dtype != torch.int32:
        raise ValueError(f"positions: got {_describe(positions)}, want [A, {tokens}] int32")
    if rotation.dimensions > width:
        raise ValueError(f"rotated dimensions: got {rotation.dimensions}, want at most {width}")
    if positions.device != q.device or rotation.axes.device != q.device:
        raise ValueError(f"positions and rotation: got {positions.device}, want {q.device}")
    return _output("q_out", q, q_out), _output("k_out", k, k_out)


def _output(name: str, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    if out is None:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.shape != x.shape or out.dtype != x.dtype or out.stride(-1) != 1:
        raise ValueError(f"{name}: got {_describe(out)}, want {_describe(x)}, D contiguous")
    return out


def _describe(tensor: torch.Tensor) -> str:
    return f"{list(tensor.shape)} {tensor.dtype} on {tensor.device}"
