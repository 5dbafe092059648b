"""Shapes the convolution is tested and measured with, odd ones first."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.causal_conv import reference
from ninfer_kernels.causal_conv.op import causal_conv_prefill, causal_conv_round
from ninfer_kernels.checking import error_share, poisoned, rounded_bound, sum_bound

# Relative error of silu in float32: exponential, sum, division, product (rule N-40).
SILU_ERROR = 16 * 2.0**-24


@dataclass(frozen=True)
class ConvCase:
    """`lanes` x `width` columns of `channels`; `prefill` is one lane with `width` columns."""

    lanes: int
    width: int
    channels: int
    dtype: torch.dtype = torch.bfloat16
    prefill: bool = False
    small: bool = False

    @property
    def name(self) -> str:
        form = "prefill" if self.prefill else "round"
        return f"{form} {self.lanes}x{self.width}x{self.channels} {self.dtype}"


CASES: tuple[ConvCase, ...] = (
    ConvCase(3, 3, 130, torch.float32, small=True),
    ConvCase(5, 1, 77, small=True),
    ConvCase(1, 16, 131, small=True),
    ConvCase(1, 1, 77, torch.float32, prefill=True, small=True),
    ConvCase(1, 2, 130, prefill=True, small=True),
    ConvCase(1, 37, 129, torch.float32, prefill=True, small=True),
    ConvCase(1, 1, 10240),
    ConvCase(8, 4, 10240),
    ConvCase(8, 16, 8192),
    ConvCase(1, 4096, 10240, prefill=True),
    ConvCase(1, 1023, 8192, prefill=True),
)


@dataclass(frozen=True)
class ConvInputs:
    mixed: torch.Tensor
    weight: torch.Tensor
    window: torch.Tensor
    slots: torch.Tensor
    columns: torch.Tensor
    base: torch.Tensor


def make_inputs(case: ConvCase, device: torch.device | str, seed: int) -> ConvInputs:
    """Return inputs with permuted slots; the second of several lanes is idle."""
    generator = torch.Generator(device).manual_seed(seed)
    slots = case.lanes + 2

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device).to(case.dtype)

    def integers(high: int, count: int) -> torch.Tensor:
        return torch.randint(
            0, high, (count,), generator=generator, device=device, dtype=torch.int32
        )

    # Columns are a part of a wider projection, as the engine hands them in.
    mixed = normal(case.lanes, case.width, case.channels + 16)[..., : case.channels]
    columns = integers(case.width, case.lanes) + 1
    columns[1:2] = 0
    order = torch.randperm(slots, generator=generator, device=device).int()
    length = 3 if case.prefill else 3 + 2 * case.width
    return ConvInputs(
        mixed=mixed,
        weight=normal(4, case.channels),
        window=normal(slots, length, case.channels),
        slots=order[: case.lanes],
        columns=columns,
        base=integers(3000, case.lanes) * integers(2, case.lanes) + integers(4, case.lanes),
    )


def allowed_error(extended: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the bound of rule N-40 for columns `extended` [..., 3 + T, C]."""
    magnitudes = reference.convolve(extended.double().abs(), weight.double().abs())
    # silu of a sum of magnitudes is at least half of it.
    magnitudes = 2 * magnitudes.double()
    want = reference.convolve(extended, weight)
    before = sum_bound(magnitudes, 4, SILU_ERROR) * 1.1
    return rounded_bound(want, dtype, before)


def worst_error(case: ConvCase, device: torch.device | str, seed: int, backend: str) -> float:
    """Return the largest error as a share of what is allowed; outputs are poisoned."""
    inputs = make_inputs(case, device, seed)
    other = make_inputs(case, device, seed)
    out = poisoned((case.lanes, case.width, case.channels), case.dtype, device)
    want = torch.empty_like(out)
    if case.prefill:
        causal_conv_prefill(*_prefill_arguments(inputs), out=out, backend=backend)
        causal_conv_prefill(*_prefill_arguments(other), out=want, backend="reference")
    else:
        causal_conv_round(*_round_arguments(inputs), out=out, backend=backend)
        causal_conv_round(*_round_arguments(other), out=want, backend="reference")
    fresh = make_inputs(case, device, seed)
    history = torch.zeros(case.lanes, 3, case.channels, device=device)
    active = torch.nonzero(fresh.columns > 0).flatten()
    history[active] = reference.gather_history(
        fresh.window, fresh.slots[active].long(), fresh.base[active]
    ).float()
    extended = torch.cat((history, fresh.mixed.float()), 1)
    bound = 2 * allowed_error(extended, fresh.weight, case.dtype)
    return max(error_share(out, want, bound), error_share(inputs.window, other.window, 0.0))


def _round_arguments(inputs: ConvInputs) -> tuple[torch.Tensor, ...]:
    return (
        inputs.mixed,
        inputs.weight,
        inputs.window,
        inputs.slots,
        inputs.columns,
        inputs.base,
    )


def _prefill_arguments(inputs: ConvInputs) -> tuple[torch.Tensor, ...]:
    return inputs.mixed, inputs.weight, inputs.window, inputs.slots, inputs.base
