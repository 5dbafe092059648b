"""Scale words of nvfp4 blocks in torch: absmax (NF-44) and search (NF-48)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ninfer_formats.codecs import nvfp4, nvfp4_search
from ninfer_tools.convert.encoders import e2m1
from ninfer_tools.convert.encoders.fp8_row import E4M3_MAX
from ninfer_tools.convert.encoders.tile_workers import Scratch, TileWorkers

BLOCK = nvfp4.BLOCK

# How many of the words tried, absmax first, are not above absmax.
_CLIPPING = 1 + sum(step < 0 for step in nvfp4_search.STEPS)


class ScaleChooser:
    """Chooses scale words under one divisor; without steps it is the absmax encoder."""

    def __init__(self, divisor: np.float32, steps: tuple[int, ...], workers: TileWorkers) -> None:
        device = workers.device
        self.workers = workers
        self.divisor = torch.tensor(float(divisor), dtype=torch.float32, device=device)
        # Step 0 comes first: the errors of absmax itself.
        self.steps = torch.tensor((0, *steps), dtype=torch.int32, device=device)[:, None]
        self.six = torch.tensor(6.0, device=device)
        self.inverses = torch.tensor(nvfp4_search.INVERSES, device=device)
        self.squares = torch.tensor(nvfp4_search.SQUARES, device=device)

    @property
    def tile(self) -> int:
        """Values of a tile: every word tried takes as much room as the values themselves."""
        return self.workers.tile // len(self.steps)

    def choose(self, values: torch.Tensor, scratch: Scratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scale words uint8 [B] of flat values, 16 to a block, and the largest
        |value * divisor| of each, float32 [B]."""
        turned = self._turn(values, scratch)
        largest = turned.amax(0)
        words = self._absmax_words(largest, scratch)
        if len(self.steps) > 1:
            tried, errors = self._try_steps(turned, words, scratch)
            least, better = _least(errors, largest)
            # The lowest of the words that reach it: the others become larger than any word.
            missed = torch.ne(errors, least, out=scratch.take("missed", errors.shape, torch.bool))
            tried.bitwise_or_(missed.view(torch.uint8).bitwise_left_shift_(7))
            words = torch.where(better, tried[1:].amin(0), words)
        return words, largest

    def measure(self, values: torch.Tensor, scratch: Scratch) -> torch.Tensor:
        """Return the squared errors float64 [B] of |value * divisor| under the chosen words."""
        turned = self._turn(values, scratch)
        largest = turned.amax(0)
        _, errors = self._try_steps(turned, self._absmax_words(largest, scratch), scratch)
        if len(errors) == 1:
            return errors[0].clone()
        least, better = _least(errors, largest)
        return torch.where(better, least, errors[0])

    def _try_steps(
        self, turned: torch.Tensor, base: torch.Tensor, scratch: Scratch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the words tried uint8 [C, B], absmax first, and their errors; both scratch."""
        shape = (len(self.steps), base.numel())
        words = torch.add(base.int(), self.steps, out=scratch.take("words", shape, torch.int32))
        words.clamp_(1, nvfp4.MAX_SCALE)[0] = base
        tried = scratch.take("tried", shape, torch.uint8).copy_(words)
        return tried, self._errors(turned, words, scratch)

    def _errors(self, turned: torch.Tensor, words: torch.Tensor, scratch: Scratch) -> torch.Tensor:
        """Return the squared errors float64 [C, B] of the blocks under words [C, B]; scratch."""
        room = scratch.derive(("room", words.shape), lambda: _Room.take(words.shape, scratch))
        index = words.view(-1)
        torch.index_select(self.inverses, 0, index, out=room.inverses)
        torch.index_select(self.squares, 0, index, out=room.squares)
        return room.errors.mul_(_square_distances(turned, room))

    def _absmax_words(self, largest: torch.Tensor, scratch: Scratch) -> torch.Tensor:
        scales = (largest / self.six).clamp_(max=E4M3_MAX).to(torch.float8_e4m3fn)
        # NaN is found by whoever sees `largest`; until then its word has to be one of the table.
        words = scales.view(torch.uint8).clamp_(max=nvfp4.MAX_SCALE)
        positive = scratch.take("positive", words.shape, torch.bool)
        # A block that is not all zero gets word 1 at least.
        torch.gt(largest, 0, out=positive)
        return torch.maximum(words, positive.view(torch.uint8), out=words)

    def _turn(self, values: torch.Tensor, scratch: Scratch) -> torch.Tensor:
        # |value * divisor| with blocks along the fast axis, [16, B]: scales broadcast and sums
        # run over whole vectors.
        turned = scratch.take("turned", (BLOCK, values.numel() // BLOCK), torch.float32)
        return turned.copy_(values.view(-1, BLOCK).t()).mul_(self.divisor).abs_()


@dataclass(frozen=True)
class _Room:
    """Buffers for C words of B blocks: the sums take the place of ratios and offsets, which are
    done with by then."""

    inverses: torch.Tensor
    squares: torch.Tensor
    errors: torch.Tensor
    factors: torch.Tensor
    ratios: torch.Tensor
    offsets: torch.Tensor
    snapped: torch.Tensor
    clipping: torch.Tensor
    sums: torch.Tensor
    halves: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    @classmethod
    def take(cls, words: torch.Size, scratch: Scratch) -> _Room:
        tried, blocks = words
        shape = (tried, BLOCK, blocks)
        inverses = scratch.take("inverses", (tried * blocks,), torch.float32)
        squares = scratch.take("squares", (tried * blocks,), torch.float64)
        ratios, offsets = scratch.take("work", (2, *shape), torch.float32)
        snapped = scratch.take("snapped", shape, torch.float32)
        work = scratch.take("work", (2 * tried * BLOCK * blocks,), torch.float32)
        sums = work.view(torch.float64).view(shape)
        return cls(
            inverses,
            squares,
            squares.view(tried, blocks),
            inverses.view(tried, 1, blocks),
            ratios,
            offsets,
            snapped,
            snapped[:_CLIPPING],
            sums,
            tuple((sums[:, :half], sums[:, half : 2 * half]) for half in (8, 4, 2, 1)),
        )


def _square_distances(magnitudes: torch.Tensor, room: _Room) -> torch.Tensor:
    """Return the sums float64 [C, B] of squared distances of [16, B] times [C, 1, B] to E2M1."""
    torch.mul(magnitudes, room.factors, out=room.ratios)
    e2m1.snap_either_way(room.ratios, room.snapped, room.offsets)
    # Only absmax itself and the word below it can be too small for the block's largest value.
    room.clipping.clamp_(max=e2m1.E2M1_MAX)
    room.snapped.sub_(room.ratios)
    room.sums.copy_(room.snapped.mul_(room.snapped))
    # The order of NF-48, written out: a reduction would choose its own.
    for first, second in room.halves:
        first.add_(second)
    return room.sums[:, 0]


def _least(errors: torch.Tensor, largest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the least error float64 [B] of the candidates, and where it beats absmax."""
    noise = largest.double()
    bar = errors[0] - noise.mul_(noise).mul_(nvfp4_search.NOISE)
    least = errors[1:].amin(0)
    return least, least < bar
