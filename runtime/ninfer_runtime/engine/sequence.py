"""The life of one request in the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import torch

from ninfer_runtime.engine.request import Request
from ninfer_runtime.prefix.lane_prefix import LanePrefix
from ninfer_runtime.prefix.reuse import Reuse
from ninfer_runtime.state.snapshot import Snapshot


class Phase(Enum):
    """WAITING for a lane, then PREFILL, then RUNNING, then DONE; any phase may end in DONE."""

    WAITING = "waiting"
    PREFILL = "prefill"
    RUNNING = "running"
    DONE = "done"


@dataclass
class Sequence:
    """One request under way. `prefilled` counts prompt tokens whose state is in the lane; tokens
    from `emitted[reach]` on can be taken back."""

    number: int
    request: Request
    max_tokens: int
    phase: Phase = Phase.WAITING
    lane: int = -1
    pages: list[int] = field(default_factory=list)
    table: torch.Tensor | None = None
    positions: torch.Tensor | None = None
    prefilled: int = 0
    emitted: list[int] = field(default_factory=list)
    prefix: LanePrefix | None = None
    reach: int = field(init=False)

    def __post_init__(self) -> None:
        self.reach = len(self.emitted)

    @property
    def reuse(self) -> Reuse:
        """What of the prompt was there already, once the request has a lane."""
        return Reuse() if self.prefix is None else self.prefix.reuse


@dataclass(frozen=True)
class SavedSequence:
    """A running request as it was at one moment: what the host knew, and its state."""

    request: Request
    max_tokens: int
    positions: torch.Tensor
    emitted: tuple[int, ...]
    state: Snapshot
