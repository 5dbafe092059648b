"""Scale words of nvfp4 blocks in torch: absmax (NF-44) and search (NF-48)."""

from __future__ import annotations

import numpy as np
import torch

from ninfer_formats.codecs import nvfp4, nvfp4_search
from ninfer_tools.convert.encoders import e2m1
from ninfer_tools.convert.encoders.fp8_row import E4M3_MAX
from ninfer_tools.convert.encoders.tile_workers import Scratch, TileWorkers

BLOCK = nvfp4.BLOCK


class ScaleChooser:
    """Chooses scale words under one divisor; without steps it is the absmax encoder."""

    def __init__(self, divisor: np.float32, steps: tuple[int, ...], workers: TileWorkers) -> None:
        device = workers.device
        self.workers = workers
        self.divisor = torch.tensor(float(divisor), dtype=torch.float32, device=device)
        # Step 0 comes first: the errors of absmax itself.
        self.steps = torch.tensor((0, *steps), dtype=torch.int32, device=device)[:, None]
        self.inverses = torch.tensor(nvfp4_search.INVERSES, device=device)
        self.squares = torch.tensor(nvfp4_search.SQUARES, device=device)

    @property
    def tile(self) -> int:
        """Values of a tile. Every step takes as much room as the values themselves, but tiles for
        the search pay at twice the size of others, because it has many small operations."""
        steps = len(self.steps)
        return self.workers.tile if steps == 1 else 2 * self.workers.tile // steps

    def choose(self, values: torch.Tensor, scratch: Scratch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scale words uint8 [B] of flat values, 16 to a block, and the largest
        |value * divisor| of each, float32 [B]."""
        turned = self._turn(values, scratch)
        largest = turned.amax(0)
        words = _absmax_words(largest)
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
        _, errors = self._try_steps(turned, _absmax_words(largest), scratch)
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
        index, count = words.view(-1), len(words)
        inverses = scratch.take("inverses", index.shape, torch.float32)
        torch.index_select(self.inverses, 0, index, out=inverses)
        sums = _square_distances(turned, inverses.view(count, 1, -1), scratch)
        squares = scratch.take("squares", index.shape, torch.float64)
        torch.index_select(self.squares, 0, index, out=squares)
        return squares.view(count, -1).mul_(sums)

    def _turn(self, values: torch.Tensor, scratch: Scratch) -> torch.Tensor:
        # |value * divisor| with blocks along the fast axis, [16, B]: scales broadcast and sums
        # run over whole vectors.
        turned = scratch.take("turned", (BLOCK, values.numel() // BLOCK), torch.float32)
        return turned.copy_(values.view(-1, BLOCK).t()).mul_(self.divisor).abs_()


def _square_distances(
    magnitudes: torch.Tensor, inverses: torch.Tensor, scratch: Scratch
) -> torch.Tensor:
    """Return the sums float64 [C, B] of squared distances of [16, B] times [C, 1, B] to E2M1."""
    shape = (len(inverses), *magnitudes.shape)
    snapped = scratch.take("snapped", shape, torch.float32)
    # The sums take the room of ratios and powers, which are done with by then.
    ratios, powers = scratch.take("work", (2, *shape), torch.float32)
    sums = scratch.take("work", (2, *shape), torch.float32).view(-1).view(torch.float64)
    torch.mul(magnitudes, inverses, out=ratios)
    e2m1.snap(ratios, snapped, powers).sub_(ratios)
    sums = sums.view(shape).copy_(snapped.mul_(snapped))
    # The order of NF-48, written out: a reduction would choose its own.
    for half in (8, 4, 2, 1):
        sums[:, :half].add_(sums[:, half : 2 * half])
    return sums[:, 0]


def _least(errors: torch.Tensor, largest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the least error float64 [B] of the candidates, and where it beats absmax."""
    noise = largest.double()
    bar = errors[0] - noise.mul_(noise).mul_(nvfp4_search.NOISE)
    least = errors[1:].amin(0)
    return least, least < bar


def _absmax_words(largest: torch.Tensor) -> torch.Tensor:
    six = torch.tensor(6.0, device=largest.device)
    scales = (largest / six).clamp_(max=E4M3_MAX).to(torch.float8_e4m3fn)
    # NaN is found by whoever sees `largest`; until then its word has to be one of the table.
    words = scales.view(torch.uint8).clamp_(max=nvfp4.MAX_SCALE)
    return words.masked_fill_((words == 0) & (largest > 0), nvfp4.RESCUED_SCALE)
