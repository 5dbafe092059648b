"""The life of one request in the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import torch

from ninfer_runtime.engine.request import Request


class Phase(Enum):
    """WAITING for a lane, then PREFILL, then RUNNING, then DONE; any phase may end in DONE."""

    WAITING = "waiting"
    PREFILL = "prefill"
    RUNNING = "running"
    DONE = "done"


@dataclass
class Sequence:
    """One request under way. `prefilled` counts prompt tokens whose state is in the lane."""

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
