"""What was drafted for a round, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Drafts:
    """Drafted tokens and the sparse distribution q that each was drawn from.

    tokens int32 [L, W-1]; ids int32 [L, W-1, C] and probabilities fp32 [L, W-1, C]: q is zero
    elsewhere (negative ids: none; no id twice). Greedy drafts: C = 1, the token itself, 1.
    """

    tokens: torch.Tensor
    ids: torch.Tensor
    probabilities: torch.Tensor


@dataclass(frozen=True)
class Verdict:
    """accepted int32 [L]: how many drafts stand, 0 .. columns - 1. tokens int32 [L, W]: the
    accepted drafts, then one token of the model's own, then 0. emitted int32 [L]: accepted + 1,
    or 0 for an idle or flagged lane. flags int32 [L]: as in `sampling`."""

    accepted: torch.Tensor
    tokens: torch.Tensor
    emitted: torch.Tensor
    flags: torch.Tensor


def allocate_verdict(lanes: int, width: int, device: torch.device | str) -> Verdict:
    """Return an unfilled verdict."""

    def integers(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.int32, device=device)

    return Verdict(integers(lanes), integers(lanes, width), integers(lanes), integers(lanes))
