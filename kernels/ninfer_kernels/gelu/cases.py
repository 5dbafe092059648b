"""Shapes GELU is tested and measured with, odd ones first; rule N-31."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ninfer_kernels.checking import error_share, poisoned, rounded_bound
from ninfer_kernels.gelu.op import GELU_KINDS, gelu


@dataclass(frozen=True)
class GeluCase:
    kind: str
    rows: int
    columns: int
    dtype: torch.dtype = torch.bfloat16
    small: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind} {self.rows}x{self.columns} {self.dtype}"


CASES: tuple[GeluCase, ...] = (
    *(GeluCase(kind, 3, 67, small=True) for kind in GELU_KINDS),
    *(GeluCase(kind, 1, 1025, torch.float32, small=True) for kind in GELU_KINDS),
    GeluCase("tanh", 4096, 4304),
    GeluCase("erf", 1024, 4608),
)


def make_inputs(case: GeluCase, device: torch.device | str, seed: int) -> torch.Tensor:
    """Return values of both signs, reaching +-60."""
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.randn(case.rows, case.columns, device=device, generator=generator) * 3
    x[0, 0], x[0, 1] = 60.0, -60.0
    return x.to(case.dtype)


def worst_error(case: GeluCase, device: torch.device | str, seed: int, backend: str) -> float:
    """Return the largest error of a backend as a share of what is allowed; outputs are poisoned."""
    x = make_inputs(case, device, seed)
    out = poisoned(tuple(x.shape), case.dtype, device)
    gelu(x, case.kind, out=out, backend=backend)
    values = x.double()
    if case.kind == "tanh":
        inner = math.sqrt(2 / math.pi) * (values + 0.044715 * values**3)
        want = values * torch.sigmoid(2 * inner)
    else:
        inner = values * math.sqrt(0.5)
        want = 0.5 * values * torch.erfc(-inner)
    before = 8 * 2.0**-24 * values.abs() * (1 + inner.abs())
    return error_share(out, want, rounded_bound(want, case.dtype, before))
