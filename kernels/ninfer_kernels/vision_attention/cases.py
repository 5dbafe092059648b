"""Frames vision attention is tested and measured with, odd ones first; rule N-32."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.checking import ROUNDOFF, error_share, poisoned, rounded_bound
from ninfer_kernels.launch import TRITON
from ninfer_kernels.vision_attention.op import vision_attention

_E = 2.0**-24
# Queries whose float64 scores are held at a time.
_EXACT_QUERIES = 512


@dataclass(frozen=True)
class VisionCase:
    """Frames of the given numbers of patches, side by side."""

    frames: tuple[int, ...]
    heads: int
    size: int
    dtype: torch.dtype = torch.bfloat16
    small: bool = False

    @property
    def name(self) -> str:
        return f"{len(self.frames)} frames {self.heads}x{self.size} {self.dtype}"


CASES: tuple[VisionCase, ...] = (
    VisionCase((70, 1, 67), 3, 72, small=True),
    VisionCase((33, 40), 2, 20, torch.float32, small=True),
    VisionCase((396,), 16, 72),
    VisionCase((1024, 16, 1000), 16, 72),
    VisionCase((256,) * 4, 12, 64),
)


@dataclass(frozen=True)
class VisionInputs:
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    boundaries: torch.Tensor


def make_inputs(case: VisionCase, device: torch.device | str, seed: int) -> VisionInputs:
    """Return q, k and v as parts of one fused projection."""
    generator = torch.Generator(device).manual_seed(seed)
    shape = (sum(case.frames), 3, case.heads, case.size)
    fused = torch.randn(shape, device=device, generator=generator).to(case.dtype)
    edges = torch.tensor([0, *case.frames]).cumsum(0).int().to(device)
    return VisionInputs(fused[:, 0], fused[:, 1], fused[:, 2], edges)


def worst_error(case: VisionCase, device: torch.device | str, seed: int, backend: str) -> float:
    """Return the largest error of a backend as a share of what is allowed; outputs are poisoned."""
    inputs = make_inputs(case, device, seed)
    q, k, v, scale = inputs.q, inputs.k, inputs.v, case.size**-0.5
    out = poisoned(tuple(q.shape), case.dtype, device)
    options = {"longest": max(case.frames), "out": out, "backend": backend}
    vision_attention(q, k, v, inputs.boundaries, scale, **options)
    weight_error = ROUNDOFF[case.dtype] if backend == TRITON else 0.0
    share, first = 0.0, 0
    for length in case.frames:
        keys, values = k[first : first + length].double(), v[first : first + length].double()
        for begin in range(first, first + length, _EXACT_QUERIES):
            end = min(begin + _EXACT_QUERIES, first + length)
            want, before = _exact(q[begin:end].double() * scale, keys, values, weight_error)
            bound = rounded_bound(want, case.dtype, before)
            share = max(share, error_share(out[begin:end], want, bound))
        first += length
    return share


def _exact(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, weight_error: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return float64 attention [Q, H, D] and the bound of N-27 of one frame."""
    queries, keys, values = (x.transpose(0, 1) for x in (queries, keys, values))
    weights = torch.softmax(queries @ keys.transpose(1, 2), dim=-1)
    sizes = queries.abs() @ keys.abs().transpose(1, 2)
    largest = sizes.amax(-1, keepdim=True)
    count, width = keys.shape[1:]
    spread = 2 * ((width + 9) * _E * largest + 8 * _E)
    before = (weights @ values.abs()) * (2 * spread + weight_error + (2 * count + 32) * _E)
    return (weights @ values).transpose(0, 1), before.transpose(0, 1)
