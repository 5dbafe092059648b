"""Shapes the gated delta rule is tested and measured with, odd ones first."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.checking import error_share, poisoned
from ninfer_kernels.gated_delta.op import fold_records, gated_delta_prefill, gated_delta_round
from ninfer_kernels.gated_delta.records import ReplayRecords, allocate_records


@dataclass(frozen=True)
class DeltaCase:
    """`lanes` x `width` columns; `prefill` is one lane with `width` columns."""

    lanes: int
    width: int
    key_heads: int
    value_heads: int
    dtype: torch.dtype = torch.bfloat16
    prefill: bool = False
    small: bool = False
    dim: int = 128

    @property
    def name(self) -> str:
        form = "prefill" if self.prefill else "round"
        heads = f"{self.key_heads}/{self.value_heads}"
        return f"{form} {self.lanes}x{self.width} heads {heads} {self.dtype}"


CASES: tuple[DeltaCase, ...] = (
    DeltaCase(3, 3, 1, 3, torch.float32, small=True),
    DeltaCase(2, 1, 2, 4, small=True),
    DeltaCase(1, 4, 1, 1, torch.float32, small=True),
    DeltaCase(1, 1, 1, 3, torch.float32, prefill=True, small=True),
    DeltaCase(1, 70, 1, 2, torch.float32, prefill=True, small=True),
    DeltaCase(1, 64, 1, 1, prefill=True, small=True),
    DeltaCase(1, 1, 16, 48),
    DeltaCase(1, 4, 16, 48),
    DeltaCase(8, 4, 16, 48),
    DeltaCase(4, 16, 16, 32),
    DeltaCase(2, 2, 16, 128, torch.float32),
    DeltaCase(1, 333, 16, 48, torch.float32, prefill=True),
    DeltaCase(1, 4096, 16, 48, prefill=True),
    DeltaCase(1, 1000, 16, 32, prefill=True),
)


@dataclass(frozen=True)
class DeltaInputs:
    mixed: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    a_log: torch.Tensor
    dt_bias: torch.Tensor
    state: torch.Tensor
    records: ReplayRecords
    slots: torch.Tensor
    columns: torch.Tensor
    base: torch.Tensor
    accepted: torch.Tensor
    settled: torch.Tensor

    def round_arguments(self) -> tuple:
        pending = (self.accepted, self.settled)
        return (*self._common(), self.slots, self.columns, self.base, *pending)

    def prefill_arguments(self) -> tuple:
        return (*self._common(), self.slots, self.base, self.accepted)

    def _common(self) -> tuple:
        gates = (self.a, self.b, self.a_log, self.dt_bias)
        return (self.mixed, *gates, self.state, self.records)


def make_inputs(case: DeltaCase, device: torch.device | str, seed: int) -> DeltaInputs:
    """Return inputs with permuted slots and pending records; a second of three lanes is idle."""
    generator = torch.Generator(device).manual_seed(seed)
    slots, max_width = case.lanes + 2, 2 if case.prefill else case.width

    def normal(*shape: int, dtype: torch.dtype = case.dtype) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    def integers(low: int, high: int, count: int) -> torch.Tensor:
        shape = (count,)
        return torch.randint(low, high, shape, generator=generator, device=device).int()

    channels = (2 * case.key_heads + case.value_heads) * case.dim
    gates = normal(case.lanes, case.width, 2 * case.value_heads)
    heads, float32 = case.value_heads, torch.float32
    records = allocate_records(
        slots,
        max_width,
        key_heads=case.key_heads,
        value_heads=heads,
        key_dim=case.dim,
        value_dim=case.dim,
        device=device,
    )
    records.key.copy_(torch.nn.functional.normalize(normal(*records.key.shape, dtype=float32)))
    records.update.copy_(normal(*records.update.shape, dtype=float32))
    records.decay.copy_(torch.sigmoid(normal(*records.decay.shape, dtype=float32)))
    columns = integers(1, case.width + 1, case.lanes)
    if case.lanes > 2:
        columns[1] = 0
    settled, last = integers(0, max_width + 1, slots), integers(0, max_width + 1, slots)
    return DeltaInputs(
        mixed=normal(case.lanes, case.width, channels + 128)[..., :channels],
        a=gates[..., :heads],
        b=gates[..., heads:],
        a_log=normal(heads, dtype=float32),
        dt_bias=normal(heads, dtype=float32),
        state=normal(slots, heads, case.dim, case.dim, dtype=float32) * 0.3,
        records=records,
        slots=torch.randperm(slots, generator=generator, device=device)[: case.lanes].int(),
        columns=columns,
        base=integers(2 * max_width, 3000, case.lanes),
        accepted=settled + last,
        settled=settled,
    )


def allowed_error(case: DeltaCase, magnitude: float) -> float:
    """Return the bound of rules N-44 and N-46 for values of at most `magnitude`."""
    if case.prefill and case.dtype != torch.float32:
        return magnitude * 2.0**-8
    steps = min(2 * case.width, 64)
    return magnitude * 2.0**-24 * (case.dim * steps) ** 0.5


def worst_error(case: DeltaCase, device: torch.device | str, seed: int, backend: str) -> float:
    """Return the largest error as a share of what is allowed; outputs are poisoned."""
    inputs, other = make_inputs(case, device, seed), make_inputs(case, device, seed)
    shape = (case.lanes, case.width, case.value_heads, case.dim)
    out = poisoned(shape, case.dtype, device)
    want = torch.empty_like(out)
    if case.prefill:
        gated_delta_prefill(*inputs.prefill_arguments(), out=out, backend=backend)
        gated_delta_prefill(*other.prefill_arguments(), out=want, backend="reference")
    else:
        gated_delta_round(*inputs.round_arguments(), out=out, backend=backend)
        gated_delta_round(*other.round_arguments(), out=want, backend="reference")
        for side, chosen in ((inputs, backend), (other, "reference")):
            last = side.accepted - side.settled
            fold_records(side.state, side.records, side.slots, side.base, last, backend=chosen)
    # Both results are rounded to bfloat16, each by at most 2^-8 of the value (N-3).
    unit = 2.0**-7 if case.dtype == torch.bfloat16 else 0.0
    largest = float(want.abs().max())
    pairs = (
        (out, want, allowed_error(case, largest) + unit * want.double().abs()),
        _pair(case, inputs.state, other.state),
        _pair(case, inputs.records.key, other.records.key),
        _pair(case, inputs.records.update, other.records.update),
        _pair(case, inputs.records.decay, other.records.decay),
    )
    return max(error_share(*pair) for pair in pairs)


def _pair(
    case: DeltaCase, got: torch.Tensor, want: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, float]:
    return got, want, allowed_error(case, float(want.abs().max()))
