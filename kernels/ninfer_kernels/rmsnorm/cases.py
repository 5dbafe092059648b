"""Shapes the RMS norms are tested and measured with, odd ones first; rules N-20 to N-22."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.checking import ROUNDOFF, error_share, poisoned, rounded_bound
from ninfer_kernels.rmsnorm.op import add_rmsnorm, gated_rmsnorm, rmsnorm

EPS = 1e-6
_E = 2.0**-24


@dataclass(frozen=True)
class NormCase:
    """`kind` plain, add or gated; [tokens, heads * width] normalised over `width`."""

    kind: str
    tokens: int
    width: int
    heads: int = 1
    dtype: torch.dtype = torch.bfloat16
    weight_dtype: torch.dtype = torch.bfloat16
    offset: bool = True
    small: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind} {self.tokens}x{self.heads}x{self.width} {self.dtype}"


def _small_cases() -> tuple[NormCase, ...]:
    fp32 = torch.float32
    return (
        NormCase("plain", 3, 67, small=True),
        NormCase("plain", 2, 1, dtype=fp32, small=True),
        NormCase("plain", 2, 9001, offset=False, weight_dtype=fp32, small=True),
        NormCase("add", 3, 300, small=True),
        NormCase("add", 2, 8193, dtype=fp32, offset=False, small=True),
        NormCase("gated", 3, 40, heads=3, small=True),
        NormCase("gated", 2, 128, heads=6, weight_dtype=fp32, small=True),
        NormCase("gated", 1, 33, heads=1, dtype=fp32, small=True),
    )


def _model_cases() -> tuple[NormCase, ...]:
    bodies = [
        NormCase(k, t, c) for k in ("plain", "add") for t in (1, 8, 2048) for c in (2048, 5120)
    ]
    gated = [NormCase("gated", t, 128, heads=h) for t in (1, 8, 2048) for h in (32, 48)]
    return tuple(bodies + gated)


CASES: tuple[NormCase, ...] = _small_cases() + _model_cases()


@dataclass(frozen=True)
class NormInputs:
    x: torch.Tensor
    other: torch.Tensor
    weight: torch.Tensor


def make_inputs(case: NormCase, device: torch.device | str, seed: int) -> NormInputs:
    """Return x, the residual or gate, and the weight; x and the gate are slices of wider rows."""
    generator = torch.Generator(device).manual_seed(seed)
    shape = (case.tokens, case.heads, 2 * case.width)
    both = torch.randn(shape, device=device, generator=generator) * 3
    x, other = both.to(case.dtype).chunk(2, dim=-1)
    weight = torch.randn(case.width, device=device, generator=generator).to(case.weight_dtype)
    if case.kind == "gated":
        return NormInputs(x, other, weight)
    return NormInputs(x[:, 0], other[:, 0], weight)


def worst_error(case: NormCase, device: torch.device | str, seed: int, backend: str) -> float:
    """Return the largest error of a backend as a share of what is allowed; outputs are poisoned."""
    inputs = make_inputs(case, device, seed)
    x, other, weight = inputs.x, inputs.other, inputs.weight
    out = poisoned(tuple(x.shape), case.dtype, device)
    gain = weight.double() + 1 if case.offset and case.kind != "gated" else weight.double()
    relative = ((case.width + 2) / 2 + 10) * _E
    if case.kind == "plain":
        rmsnorm(x, weight, EPS, offset=case.offset, out=out, backend=backend)
        return _share(out, _normal(x) * gain, relative)
    if case.kind == "add":
        total = poisoned(tuple(x.shape), case.dtype, device)
        options = {"offset": case.offset, "out": out, "sum_out": total, "backend": backend}
        add_rmsnorm(x, other, weight, EPS, **options)
        summed = _share(total, x.double() + other.double(), _E)
        return max(summed, _share(out, _normal(total) * gain, relative))
    gated_rmsnorm(x, other, weight, EPS, out=out, backend=backend)
    gate = other.double()
    promoted = torch.promote_types(case.dtype, case.weight_dtype)
    inner = (1 + ROUNDOFF[case.dtype]) * (1 + ROUNDOFF[promoted]) * (1 + relative + 8 * _E) - 1
    want = _normal(x) * gain * gate * torch.sigmoid(gate)
    return _share(out, want, inner + gate.abs() * _E)


def _normal(x: torch.Tensor) -> torch.Tensor:
    values = x.double()
    return values / torch.sqrt(values.pow(2).mean(-1, keepdim=True) + EPS)


def _share(out: torch.Tensor, want: torch.Tensor, relative: torch.Tensor | float) -> float:
    return error_share(out, want, rounded_bound(want, out.dtype, want.abs() * relative))
