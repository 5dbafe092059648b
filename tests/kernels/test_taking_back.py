"""Taking columns back: the last two rounds leave no trace (specs/numerics.md N-41, N-45)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from ninfer_kernels.causal_conv import causal_conv_round
from ninfer_kernels.gated_delta import allocate_records, fold_records, gated_delta_round

HEADS, DIM, SLOT = 2, 16, 1
CHANNELS = 2 * DIM + HEADS * DIM


@dataclass
class Lane:
    """One sequence in slot 1 of 2, as the engine keeps it: columns in, outputs out."""

    device: str
    backend: str
    max_width: int
    base: int = 0
    outputs: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.weight = torch.randn(4, CHANNELS, generator=generator).to(self.device)
        self.a_log = torch.randn(HEADS, generator=generator).to(self.device)
        nan = float("nan")
        shape = (2, 3 + 2 * self.max_width, CHANNELS)
        self.window = torch.full(shape, nan, device=self.device)
        self.state = torch.zeros(2, HEADS, DIM, DIM, device=self.device)
        self.records = allocate_records(
            2, self.max_width, key_heads=1, value_heads=HEADS, key_dim=DIM, value_dim=DIM,
            device=self.device,
        )  # fmt: skip
        for plane in (self.records.key, self.records.update, self.records.decay):
            plane.fill_(nan)
        self.accepted = torch.zeros(2, dtype=torch.int32, device=self.device)
        self.settled = torch.zeros(2, dtype=torch.int32, device=self.device)

    def integers(self, *values: int) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def run(self, columns: torch.Tensor, kept: int, width: int) -> None:
        """One round of columns [n, CHANNELS + 2 HEADS] padded to `width`, of which `kept` stay."""
        place = (self.integers(SLOT), self.integers(len(columns)), self.integers(self.base))
        columns = torch.nn.functional.pad(columns, (0, 0, 0, width - len(columns)))
        columns = columns.to(self.device)[None]
        mixed = causal_conv_round(
            columns[..., :CHANNELS], self.weight, self.window, *place, backend=self.backend
        )
        a, b = columns[..., CHANNELS:].split(HEADS, dim=-1)
        out = gated_delta_round(
            mixed, a, b, self.a_log, self.a_log, self.state, self.records, *place,
            self.accepted, self.settled, backend=self.backend,
        )  # fmt: skip
        self.settled[SLOT] = self.accepted[SLOT] - self.settled[SLOT]
        self.accepted[SLOT] = self.settled[SLOT] + kept
        self.base += kept
        self.outputs.append(out[0, :kept])

    def take_back(self, count: int) -> None:
        self.base -= count
        self.accepted[SLOT] -= count
        self.settled.copy_(torch.minimum(self.settled, self.accepted))

    def finish(self) -> torch.Tensor:
        """Return the state with every record folded in."""
        rest = (self.integers(SLOT), self.integers(self.base), self.accepted)
        fold_records(self.state, self.records, *rest, backend=self.backend)
        return self.state[SLOT]


def make_columns(count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, CHANNELS + 2 * HEADS, generator=generator)


def compare_with_untouched(
    device: str, backend: str, width: int, dropped: int, following: int
) -> None:
    """Rounds of 1, 2 and `width` columns, then `following` kept columns in flight; `dropped`
    columns of the third round and the whole fourth are taken back, and two rounds more run."""
    lane, other = (Lane(device, backend, max(width, 2)) for _ in range(2))
    true, wrong = make_columns(3 + 2 * width, 2), make_columns(2 * width, 3)
    kept = 3 + width - dropped
    for begin, end in ((0, 1), (1, 3)):
        lane.run(true[begin:end], end - begin, 2)
        other.run(true[begin:end], end - begin, 2)
    lane.run(torch.cat((true[3:kept], wrong[:dropped])), width, width)
    if following:
        lane.run(wrong[width:], following, width)
    lane.take_back(dropped + following)
    if kept > 3:
        other.run(true[3:kept], kept - 3, width)
    lane.outputs, other.outputs = [], []
    for begin, end in ((kept, kept + 1), (kept + 1, kept + width)):
        if end > begin:
            lane.run(true[begin:end], end - begin, width)
            other.run(true[begin:end], end - begin, width)
    assert torch.equal(torch.cat(lane.outputs), torch.cat(other.outputs))
    assert torch.equal(lane.finish(), other.finish())
    history = [(lane.base - back) % lane.window.shape[1] for back in (1, 2, 3)]
    assert torch.equal(lane.window[SLOT, history], other.window[SLOT, history])
    assert bool(torch.isfinite(torch.cat(lane.outputs)).all())


@pytest.mark.parametrize("width", range(1, 17))
def test_columns_taken_back_leave_no_trace(width: int):
    """N-41, N-45: 0 to all columns of a round, with the next one in flight or without."""
    for dropped in range(width + 1):
        for following in {0, 1, width}:
            compare_with_untouched("cpu", "reference", width, dropped, following)


@pytest.mark.parametrize(
    ("width", "dropped", "following"), [(1, 1, 1), (3, 2, 3), (3, 3, 0), (4, 0, 2), (4, 1, 4)]
)
def test_columns_taken_back_leave_no_trace_in_kernels(
    width: int, dropped: int, following: int, device: str
):
    """N-41, N-45, by the kernels themselves."""
    compare_with_untouched(device, "triton", width, dropped, following)
