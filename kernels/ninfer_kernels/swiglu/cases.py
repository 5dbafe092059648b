"""Shapes `swiglu` is tested and measured with, odd ones first."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.checking import error_share, poisoned, rounded_bound
from ninfer_kernels.swiglu.op import swiglu


@dataclass(frozen=True)
class SwigluCase:
    """[tokens, 2 * columns] to [tokens, columns]."""

    tokens: int
    columns: int
    dtype: torch.dtype = torch.bfloat16
    small: bool = False

    @property
    def name(self) -> str:
        return f"{self.tokens}x{self.columns} {self.dtype}"


CASES: tuple[SwigluCase, ...] = (
    SwigluCase(3, 67, small=True),
    SwigluCase(1, 1025, torch.float32, small=True),
    SwigluCase(2, 64, small=True),
    SwigluCase(1, 17408),
    SwigluCase(8, 17408),
    SwigluCase(4096, 17408),
    SwigluCase(4096, 512),
)

# exp, addition, division and two products, each within 2 units of float32 (rule N-13).
_RELATIVE = 8 * 2.0**-23


def make_inputs(case: SwigluCase, device: torch.device | str, seed: int) -> torch.Tensor:
    """Return gate and up side by side; magnitudes reach 100, where exp overflows or vanishes."""
    generator = torch.Generator(device).manual_seed(seed)
    values = torch.randn(case.tokens, 2 * case.columns, device=device, generator=generator)
    values[:, ::7] *= 40
    values[0, 0], values[-1, 1] = -100.0, 100.0
    return values.to(case.dtype)


def worst_error(case: SwigluCase, device: torch.device | str, seed: int, backend: str) -> float:
    """Return the largest error of a backend as a share of what is allowed; outputs are poisoned."""
    gate_up = make_inputs(case, device, seed)
    out = poisoned((case.tokens, case.columns), case.dtype, device)
    swiglu(gate_up, out=out, backend=backend)
    gate, up = gate_up.double().chunk(2, dim=1)
    want = gate * torch.sigmoid(gate) * up
    # exp's relative error grows with its argument; a sigmoid below 2^-126 may become 0.
    before = want.abs() * (_RELATIVE + gate.abs() * 2.0**-24) + (gate * up).abs() * 2.0**-126
    return error_share(out, want, rounded_bound(want, case.dtype, before))
