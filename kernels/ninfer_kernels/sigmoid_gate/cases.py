"""Shapes the sigmoid gate is tested and measured with, odd ones first; rule N-29."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.checking import error_share, poisoned, rounded_bound
from ninfer_kernels.sigmoid_gate.op import sigmoid_gate


@dataclass(frozen=True)
class GateCase:
    """[tokens, heads, size]; the gate is the second half of heads of 2 * size."""

    tokens: int
    heads: int
    size: int
    dtype: torch.dtype = torch.bfloat16
    small: bool = False

    @property
    def name(self) -> str:
        return f"{self.tokens}x{self.heads}x{self.size} {self.dtype}"


CASES: tuple[GateCase, ...] = (
    GateCase(3, 3, 40, small=True),
    GateCase(1, 1, 33, torch.float32, small=True),
    GateCase(1, 24, 256),
    GateCase(8, 16, 256),
    GateCase(2048, 24, 256),
)


def make_inputs(
    case: GateCase, device: torch.device | str, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (attended, gate); gates reach +-100, where exp overflows or vanishes."""
    generator = torch.Generator(device).manual_seed(seed)
    shape = (case.tokens, case.heads, 2 * case.size)
    gate = torch.randn(shape, device=device, generator=generator) * 3
    gate[..., -1], gate[..., -2] = 100.0, -100.0
    attended = torch.randn((*shape[:2], case.size), device=device, generator=generator)
    return attended.to(case.dtype), gate.to(case.dtype)[..., case.size :]


def worst_error(case: GateCase, device: torch.device | str, seed: int, backend: str) -> float:
    """Return the largest error of a backend as a share of what is allowed; outputs are poisoned."""
    attended, gate = make_inputs(case, device, seed)
    out = poisoned(tuple(attended.shape), case.dtype, device)
    sigmoid_gate(attended, gate, out=out, backend=backend)
    want = attended.double() * torch.sigmoid(gate.double())
    before = want.abs() * (12 + gate.double().abs()) * 2.0**-24
    before += attended.double().abs() * 2.0**-126
    return error_share(out, want, rounded_bound(want, case.dtype, before))
