"""Shapes the rotary embedding is tested and measured with, odd ones first; N-23 to N-26."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.checking import ROUNDOFF, error_share, poisoned, rounded_bound
from ninfer_kernels.rope.op import normalise_and_rotate, rotate
from ninfer_kernels.rope.rotation import Rotation, Yarn, text_rotation, vision_rotation

EPS = 1e-6
_E = 2.0**-24


@dataclass(frozen=True)
class RopeCase:
    """Heads of `size`, the first `turned` dimensions turned; without `sections` on one axis."""

    tokens: int
    q_heads: int
    kv_heads: int
    size: int
    turned: int
    sections: tuple[int, int, int] | None = None
    vision: bool = False
    yarn: bool = False
    offset: bool = True
    dtype: torch.dtype = torch.bfloat16
    small: bool = False

    @property
    def name(self) -> str:
        kind = "vision" if self.vision else "yarn" if self.yarn else "text"
        heads = f"{self.q_heads}+{self.kv_heads}"
        return f"{kind} {self.tokens}x{heads}x{self.size}/{self.turned} {self.dtype}"


def _small_cases() -> tuple[RopeCase, ...]:
    fp32 = torch.float32
    return (
        RopeCase(3, 5, 1, 36, 12, (2, 2, 2), small=True),
        RopeCase(2, 6, 2, 256, 64, (11, 11, 10), dtype=fp32, small=True),
        RopeCase(2, 3, 3, 40, 40, offset=False, small=True),
        RopeCase(2, 4, 1, 64, 16, (3, 3, 2), yarn=True, dtype=fp32, small=True),
        RopeCase(3, 3, 3, 72, 72, vision=True, small=True),
        RopeCase(2, 2, 2, 64, 64, vision=True, dtype=fp32, small=True),
    )


def _model_cases() -> tuple[RopeCase, ...]:
    mrope = (11, 11, 10)
    text = [RopeCase(t, q, k, 256, 64, mrope) for t in (1, 8, 2048) for q, k in ((24, 4), (16, 2))]
    drafter = [RopeCase(8, 32, 8, 128, 128, offset=False)]
    vision = [RopeCase(4096, 16, 16, 72, 72, vision=True)]
    return tuple(text + drafter + vision)


CASES: tuple[RopeCase, ...] = _small_cases() + _model_cases()


@dataclass(frozen=True)
class RopeInputs:
    q: torch.Tensor
    k: torch.Tensor
    q_weight: torch.Tensor
    k_weight: torch.Tensor
    positions: torch.Tensor
    rotation: Rotation


def make_inputs(case: RopeCase, device: torch.device | str, seed: int) -> RopeInputs:
    """Return heads that are halves of wider ones, and positions up to 2^18 (vision: 2^10)."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, generator=generator)

    q = normal(case.tokens, case.q_heads, 2 * case.size).to(case.dtype)[..., : case.size]
    k = normal(case.tokens, case.kv_heads, case.size).to(case.dtype)
    highest, axes = (1 << 10, 2) if case.vision else (1 << 18, 3)
    shape = (axes, case.tokens)
    positions = torch.randint(0, highest, shape, device=device, generator=generator)
    weights = (normal(case.size).to(case.dtype), normal(case.size))
    return RopeInputs(q, k, *weights, positions.int(), _rotation(case, device))


def _rotation(case: RopeCase, device: torch.device | str) -> Rotation:
    if case.vision:
        return vision_rotation(case.size, device=device)
    yarn = Yarn(4.0, 262144) if case.yarn else None
    return text_rotation(1e7, case.turned, sections=case.sections, yarn=yarn, device=device)


def worst_error(case: RopeCase, device: torch.device | str, seed: int, backend: str) -> float:
    """Return the largest error of a backend as a share of what is allowed; outputs are poisoned."""
    inputs = make_inputs(case, device, seed)
    q, k, rotation = inputs.q, inputs.k, inputs.rotation
    outs = [poisoned(tuple(x.shape), case.dtype, device) for x in (q, k)]
    options = {"q_out": outs[0], "k_out": outs[1], "backend": backend}
    if case.vision:
        rotate(q, k, inputs.positions, rotation, **options)
    else:
        weights = (inputs.q_weight, inputs.k_weight)
        options |= {"eps": EPS, "offset": case.offset}
        normalise_and_rotate(q, k, *weights, inputs.positions, rotation, **options)
    shares = []
    for x, weight, out in ((q, inputs.q_weight, outs[0]), (k, inputs.k_weight, outs[1])):
        values, relative = x.double(), 0.0
        if not case.vision:
            values = values / torch.sqrt(values.pow(2).mean(-1, keepdim=True) + EPS)
            values = values * (weight.double() + case.offset)
            relative = ((case.size + 2) / 2 + 10) * _E
        shares.append(_share(case, values, relative, inputs.positions, rotation, out))
    return max(shares)


def _share(
    case: RopeCase,
    values: torch.Tensor,
    relative: float,
    positions: torch.Tensor,
    rotation: Rotation,
    out: torch.Tensor,
) -> float:
    """Compare `out` with the float64 rotation of the exact normalised `values`."""
    half, factor = rotation.dimensions // 2, rotation.attention_factor
    # The angle is an fp32 product by definition; from there on everything is exact.
    steps = positions.float()[rotation.axes.long()].T
    angles = (steps * rotation.inverse_frequencies).double()[:, None]
    cos, sin = torch.cos(angles) * factor, torch.sin(angles) * factor
    a, b = values[..., :half], values[..., half : 2 * half]
    passing = values[..., 2 * half :]
    want = torch.cat([a * cos - b * sin, b * cos + a * sin, passing], dim=-1)
    table = ROUNDOFF[case.dtype] if rotation.rounds_table else _E
    share = (1 + relative) * (1 + table + 4 * _E) - 1
    slack = (a.abs() + b.abs()) * factor * 2.0**-22
    first = ((a * cos).abs() + (b * sin).abs()) * share + slack
    second = ((b * cos).abs() + (a * sin).abs()) * share + slack
    before = torch.cat([first, second, passing.abs() * relative], dim=-1)
    return error_share(out, want, rounded_bound(want, case.dtype, before))
