"""Putting a request into a lane of the device's table, and taking it out again."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ninfer_runtime.engine.lanes import LaneTable
from ninfer_runtime.engine.sequence import Sequence


def activate(table: LaneTable, sequence: Sequence) -> None:
    """Let a prefilled sequence take part in rounds, from its last prompt token on."""
    lane, request = sequence.lane, sequence.request
    assert sequence.positions is not None
    last = len(request.prompt) - 1
    table.tokens[lane, 0] = request.prompt[last]
    table.base[lane] = last
    table.shift[lane] = int(sequence.positions[:, last].max()) - last
    table.remaining[lane] = sequence.max_tokens
    write_pages(table, sequence)
    table.stops[lane].fill_(-1)
    for index, stop in enumerate(request.stops):
        table.stops[lane, index] = stop
    _write_sampling(table, sequence)
    restrict(table, sequence)
    table.counts[lane] = 1


def restrict(table: LaneTable, sequence: Sequence) -> None:
    """Let a lane draft as its request's mask permits; until the mask is asked, all tokens may
    come."""
    table.widths[sequence.lane] = table.width if sequence.request.mask is None else 1
    table.mask[sequence.lane].fill_(-1)


def write_pages(table: LaneTable, sequence: Sequence) -> None:
    """Give a lane the pages of its sequence."""
    assert sequence.table is not None
    table.pages[sequence.lane].fill_(-1)
    table.pages[sequence.lane, : sequence.table.shape[1]] = sequence.table[0]


def idle(table: LaneTable, lane: int) -> None:
    """Keep a lane out of every further round."""
    table.counts[lane] = 0


def write_mask(table: LaneTable, sequence: Sequence) -> None:
    """Set what the lane's next token may be, where the request restricts it. Raises what the mask
    raises, and ValueError for one of another form."""
    if sequence.request.mask is not None:
        words, own = sequence.request.mask(tuple(sequence.emitted)), table.mask[sequence.lane]
        found = isinstance(words, torch.Tensor)
        if not found or words.dtype != own.dtype or words.shape != own.shape:
            got = f"{words.dtype} {list(words.shape)}" if found else type(words).__name__
            raise ValueError(f"got {got}, want a tensor int32 {list(own.shape)}")
        own.copy_(words)


def forbids_all(table: LaneTable, sequence: Sequence, vocabulary: int) -> bool:
    """Return whether the mask of a lane allows no token. Waits for the device."""
    words = table.mask[sequence.lane].cpu()
    bits = (words[:, None] >> torch.arange(32)) & 1
    return not bool(bits.flatten()[:vocabulary].any())


def _write_sampling(table: LaneTable, sequence: Sequence) -> None:
    lane, wanted = sequence.lane, sequence.request.sampling
    table.sampling.temperature[lane] = wanted.temperature
    table.sampling.top_k[lane] = wanted.top_k
    table.sampling.top_p[lane] = wanted.top_p
    table.sampling.min_p[lane] = wanted.min_p
    table.sampling.seed[lane] = wanted.seed
    table.penalties.repetition[lane] = wanted.repetition
    table.penalties.presence[lane] = wanted.presence
    table.penalties.frequency[lane] = wanted.frequency
    table.bias_ids[lane].fill_(-1)
    if wanted.penalised:
        device = table.history.device
        table.history[lane].zero_()
        table.prompt[lane].zero_()
        table.prompt[lane, torch.tensor(sequence.request.prompt, device=device)] = 1
        _write_bias(table, lane, wanted.bias)


def _write_bias(table: LaneTable, lane: int, bias: Mapping[int, float]) -> None:
    for index, (token, value) in enumerate(bias.items()):
        table.bias_ids[lane, index] = token
        table.bias_values[lane, index] = value
