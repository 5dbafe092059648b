"""Shapes accepting and rejecting is tested and measured with, odd ones first."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ninfer_kernels.checking import error_share, poisoned
from ninfer_kernels.sampling.cases import make_parameters
from ninfer_kernels.sampling.op import select_candidates
from ninfer_kernels.speculation.op import accept_drafts
from ninfer_kernels.speculation.verdict import Drafts, Verdict


@dataclass(frozen=True)
class SpeculationCase:
    """`lanes` x `width` columns; q has `count` tokens per draft (1: greedy drafts)."""

    lanes: int
    width: int
    vocabulary: int
    count: int
    small: bool = False

    @property
    def name(self) -> str:
        return f"{self.lanes}x{self.width}x{self.vocabulary} q {self.count}"


CASES: tuple[SpeculationCase, ...] = (
    SpeculationCase(3, 3, 11, 1, small=True),
    SpeculationCase(5, 5, 300, 16, small=True),
    SpeculationCase(2, 1, 70, 1, small=True),
    SpeculationCase(8, 4, 248077, 1),
    SpeculationCase(8, 16, 248077, 16),
)


@dataclass(frozen=True)
class SpeculationInputs:
    logits: torch.Tensor
    drafts: Drafts
    position: torch.Tensor
    columns: torch.Tensor


def make_inputs(case: SpeculationCase, device: torch.device | str, seed: int) -> SpeculationInputs:
    """Return logits, drafts among the likely tokens with their q, and 0..W real columns."""
    generator = torch.Generator(device).manual_seed(seed)
    shape = (case.lanes, case.width, case.vocabulary)
    logits = torch.randn(shape, generator=generator, device=device) * 2
    rows = (case.lanes, case.width - 1)
    found = select_candidates(logits.view(-1, case.vocabulary), backend="reference")
    best = found.ids.view(case.lanes, case.width, -1)[:, :-1, : case.count]
    weights = torch.rand(best.shape, generator=generator, device=device) + 0.01
    pick = torch.randint(0, case.count, (*rows, 1), generator=generator, device=device)
    columns = torch.randint(0, case.width + 1, (case.lanes,), generator=generator, device=device)
    return SpeculationInputs(
        logits=logits,
        drafts=Drafts(
            tokens=best.gather(2, pick).squeeze(2).contiguous(),
            ids=best.contiguous(),
            probabilities=(weights / weights.sum(-1, keepdim=True)).contiguous(),
        ),
        position=torch.randint(
            0, 1000, (case.lanes,), generator=generator, device=device, dtype=torch.int32
        ),
        columns=columns.int(),
    )


def worst_error(
    case: SpeculationCase, device: torch.device | str, seed: int, backend: str
) -> float:
    """Return 0 if all of a verdict equals the reference's, infinity if not."""
    shares = []
    inputs = make_inputs(case, device, seed)
    rows = inputs.logits.view(-1, case.vocabulary)
    found = select_candidates(rows, backend="reference")
    for step in range(6):
        inputs = replace(inputs, position=inputs.position + step)
        parameters = make_parameters(case.lanes, device, seed + step)
        arguments = (inputs.logits, inputs.drafts, parameters, inputs.position, inputs.columns)
        shape, integer = (case.lanes,), torch.int32
        out = Verdict(
            accepted=poisoned(shape, integer, device),
            tokens=poisoned((*shape, case.width), integer, device),
            emitted=poisoned(shape, integer, device),
            flags=poisoned(shape, integer, device),
        )
        slots = torch.arange(case.lanes, device=device).flip(0).int()
        counts = [poisoned(shape, integer, device) for _ in range(2)]
        options = {"candidates": found, "wide": False, "slots": slots}
        got = accept_drafts(*arguments, **options, committed=counts[0], out=out, backend=backend)
        want = accept_drafts(*arguments, **options, committed=counts[1], backend="reference")
        shares += [
            error_share(counts[0], counts[1], 0.0),
            error_share(got.accepted, want.accepted, 0.0),
            error_share(got.tokens, want.tokens, 0.0),
            error_share(got.emitted, want.emitted, 0.0),
            error_share(got.flags, want.flags, 0.0),
        ]
    return max(shares)
