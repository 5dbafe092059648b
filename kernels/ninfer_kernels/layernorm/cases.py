"""Shapes the layer norm is tested and measured with, odd ones first; rule N-30."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.checking import error_share, poisoned, rounded_bound
from ninfer_kernels.layernorm.op import layernorm

EPS = 1e-6
_E = 2.0**-24


@dataclass(frozen=True)
class LayerNormCase:
    """Rows of `width` numbers around `mean`."""

    rows: int
    width: int
    mean: float = 0.0
    dtype: torch.dtype = torch.bfloat16
    small: bool = False

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.width} around {self.mean} {self.dtype}"


CASES: tuple[LayerNormCase, ...] = (
    LayerNormCase(3, 67, small=True),
    LayerNormCase(2, 144, 50.0, torch.float32, small=True),
    LayerNormCase(2, 1, small=True),
    LayerNormCase(4096, 1152),
    LayerNormCase(4096, 1152, 10.0),
    LayerNormCase(64, 768),
)


def make_inputs(
    case: LayerNormCase, device: torch.device | str, seed: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (x, weight, bias)."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, generator=generator)

    x = (normal(case.rows, case.width) + case.mean).to(case.dtype)
    return x, normal(case.width), normal(case.width).to(case.dtype)


def worst_error(case: LayerNormCase, device: torch.device | str, seed: int, backend: str) -> float:
    """Return the largest error of a backend as a share of what is allowed; outputs are poisoned."""
    x, weight, bias = make_inputs(case, device, seed)
    out = poisoned(tuple(x.shape), case.dtype, device)
    layernorm(x, weight, bias, EPS, out=out, backend=backend)
    values, gain, shift = x.double(), weight.double(), bias.double()
    centred = values - values.mean(-1, keepdim=True)
    root = torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + EPS)
    want = centred / root * gain + shift
    moved = (case.width + 4) * _E * values.abs().mean(-1, keepdim=True)
    relative = ((case.width + 2) / 2 + 10) * _E
    size = centred.abs()
    before = gain.abs() * ((size + moved) * relative + moved + size * moved / root) / root
    before += 4 * _E * (gain.abs() * size / root + shift.abs())
    return error_share(out, want, rounded_bound(want, case.dtype, before))
