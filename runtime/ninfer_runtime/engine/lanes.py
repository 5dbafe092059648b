"""The device's view of the lanes: everything a round reads and changes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch

from ninfer_kernels.sampling import Penalties, SamplingParameters
from ninfer_runtime.config import PAGE_TOKENS, Settings

# Ids that end a request, per lane; unused entries are -1.
MAX_STOP_IDS = 16
MAX_BIAS = 512


@dataclass(frozen=True)
class LaneTable:
    """State of the lanes between rounds, int32 unless noted, on the device.

    `tokens` [L, W] are the columns of the next round: the newest token, then drafts; `counts` [L]
    the columns that are real (0: idle), `widths` [L]
    how many there may be. `base` [L] counts the tokens whose state is committed,
    `shift` [L] is added to a token's index to give its rotary position, `remaining` [L] counts the
    tokens that may still come. `pages` [L, P]; `slots` [L]; `stops` [L, 16].
    `history` [L, V] counts generated tokens, `prompt` uint8 [L, V] marks those of the prompt;
    `bias_ids` [L, 512] (-1: unused) and `bias_values` fp32 are added to logits;
    `mask` [L, ceil(V / 32)] has a bit for every token that may come.
    """

    tokens: torch.Tensor
    counts: torch.Tensor
    base: torch.Tensor
    shift: torch.Tensor
    remaining: torch.Tensor
    widths: torch.Tensor
    pages: torch.Tensor
    slots: torch.Tensor
    stops: torch.Tensor
    sampling: SamplingParameters
    penalties: Penalties
    history: torch.Tensor
    prompt: torch.Tensor
    bias_ids: torch.Tensor
    bias_values: torch.Tensor
    mask: torch.Tensor

    def first(self, count: int) -> LaneTable:
        """Return the first `count` lanes, as views."""
        return self._cut(slice(count))

    def lane(self, number: int) -> LaneTable:
        """Return one lane, as views."""
        return self._cut(slice(number, number + 1))

    def _cut(self, lanes: slice) -> LaneTable:
        return LaneTable(**{f.name: _cut(getattr(self, f.name), lanes) for f in fields(self)})

    @property
    def planes(self) -> tuple[torch.Tensor, ...]:
        """Every tensor that describes a sequence wherever it lies: all but `pages` and `slots`."""
        parts = [getattr(self, f.name) for f in fields(self) if f.name not in ("pages", "slots")]
        return tuple(tensor for part in parts for tensor in _tensors(part))

    @property
    def lanes(self) -> int:
        return self.tokens.shape[0]

    @property
    def width(self) -> int:
        return self.tokens.shape[1]


def _cut(value: Any, lanes: slice) -> Any:
    if isinstance(value, torch.Tensor):
        return value[lanes]
    return type(value)(*(getattr(value, f.name)[lanes] for f in fields(value)))


def _tensors(value: Any) -> tuple[torch.Tensor, ...]:
    if isinstance(value, torch.Tensor):
        return (value,)
    return tuple(getattr(value, f.name) for f in fields(value))


def allocate_lanes(settings: Settings, vocabulary: int) -> LaneTable:
    """Return idle lanes."""
    lanes, device = settings.lanes, settings.device

    def integers(*shape: int, value: int = 0) -> torch.Tensor:
        return torch.full(shape, value, dtype=torch.int32, device=device)

    def floats(value: float) -> torch.Tensor:
        return torch.full((lanes,), value, dtype=torch.float32, device=device)

    most = -(-settings.max_context // PAGE_TOKENS) + 1
    seeds = torch.zeros(lanes, dtype=torch.int64, device=device)
    return LaneTable(
        tokens=integers(lanes, settings.width),
        counts=integers(lanes),
        base=integers(lanes),
        shift=integers(lanes),
        remaining=integers(lanes),
        widths=integers(lanes, value=settings.width),
        pages=integers(lanes, most, value=-1),
        slots=torch.arange(lanes, dtype=torch.int32, device=device),
        stops=integers(lanes, MAX_STOP_IDS, value=-1),
        sampling=SamplingParameters(floats(0), integers(lanes), floats(1), floats(0), seeds),
        penalties=Penalties(floats(1), floats(0), floats(0)),
        history=integers(lanes, vocabulary),
        prompt=torch.zeros(lanes, vocabulary, dtype=torch.uint8, device=device),
        bias_ids=integers(lanes, MAX_BIAS, value=-1),
        bias_values=torch.zeros(lanes, MAX_BIAS, dtype=torch.float32, device=device),
        mask=integers(lanes, -(-vocabulary // 32), value=-1),
    )
