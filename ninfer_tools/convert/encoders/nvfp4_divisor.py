"""The divisor of a whole nvfp4 tensor from a stream of its row blocks: NF-43 and NF-49."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch

from ninfer_formats.codecs import nvfp4, nvfp4_search
from ninfer_formats.layouts.geometry import align_up
from ninfer_tools.convert.encoders import blocks
from ninfer_tools.convert.encoders.nvfp4_scales import ScaleChooser
from ninfer_tools.convert.encoders.tile_workers import Scratch, TileWorkers

BLOCK = nvfp4.BLOCK
Stream = Callable[[], Iterable[torch.Tensor]]


def choose_divisor(
    stream: Stream, shape: tuple[int, int], method: str, workers: TileWorkers
) -> np.float32:
    """Return the divisor of the tensor [N, K] whose row blocks `stream()` yields from row 0 on.

    `search` reads the stream a second time where another divisor than the absmax one looks
    better on the sample. Raises NumericError for NaN and infinity.
    """
    step = nvfp4_search.sample_step(*shape) if method == "search" else 0
    largest, sample = _survey(stream(), step, workers)
    if method == "absmax":
        return nvfp4.choose_divisor(largest)
    candidates = nvfp4_search.list_divisors(largest)
    errors = [
        nvfp4_search.sum_errors(_measure(sample, divisor, True, workers).tolist(), divisor)
        for divisor in candidates
    ]
    divisor, absmax = nvfp4_search.select_divisor(candidates, errors), candidates[0]
    if divisor != absmax and _is_worse(stream(), divisor, absmax, workers):
        return absmax
    return divisor


def _survey(
    parts: Iterable[torch.Tensor], step: int, workers: TileWorkers
) -> tuple[float, torch.Tensor]:
    # The largest magnitude and, with a step, every step-th row of the tensor.
    largest, begin = 0.0, 0
    sample: list[torch.Tensor] = []
    for block in parts:
        reached = blocks.largest_magnitude(block, workers)
        if not np.isfinite(reached):
            blocks.refuse_non_finite(block, "NVFP4 quantization source", begin)
        largest = max(largest, reached)
        if step:
            sample.append(block[-begin % step :: step].clone())
        begin += len(block)
    return largest, torch.cat(sample) if sample else torch.empty(0)


def _is_worse(
    parts: Iterable[torch.Tensor],
    divisor: np.float32,
    absmax: np.float32,
    workers: TileWorkers,
) -> bool:
    reached: list[float] = []
    plain: list[float] = []
    for block in parts:
        groups = align_up(block.shape[1], BLOCK) // BLOCK
        for sums, tried, search in ((reached, divisor, True), (plain, absmax, False)):
            sums += nvfp4_search.sum_tiles(_measure(block, tried, search, workers), groups)
    return not nvfp4_search.is_no_worse(reached, divisor, plain, absmax)


def _measure(
    rows: torch.Tensor, divisor: np.float32, search: bool, workers: TileWorkers
) -> np.ndarray:
    """Return the block errors float64 of rows [N, K], with or without the search."""
    flat = blocks.pad_columns(rows, align_up(rows.shape[1], BLOCK)).reshape(-1)
    chooser = ScaleChooser(divisor, nvfp4_search.STEPS if search else (), workers)

    def find(tile: slice, scratch: Scratch) -> torch.Tensor:
        return chooser.measure(flat[tile], scratch)

    return torch.cat(workers.run(flat.numel(), BLOCK, find, chooser.tile)).cpu().numpy()
