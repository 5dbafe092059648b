"""Legal random bytes of any tensor, as a stream of bounded chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import UsageError
from ninfer_tools.synthetic.block_workers import CpuBlocks, CudaBlocks
from ninfer_tools.synthetic.plane_fills import PlaneFill, plan_fills
from ninfer_tools.synthetic.seeds import seed_sequence
from ninfer_tools.synthetic.vocabulary import Vocabulary

# The unit of seeding: one block is drawn from one generator, whoever draws it and when.
BLOCK_BYTES = 4 << 20

Chunk = tuple[int, np.ndarray]


class BlockWorker(Protocol):
    """Draws the blocks of a plane, in order; see `block_workers`."""

    def draw(
        self, fill: PlaneFill, seed_key: tuple[int, ...], block_rows: int
    ) -> Iterator[np.ndarray]: ...


def fill_tensor(
    format: str,
    layout: str,
    shape: tuple[int, ...],
    seed_key: tuple[int, ...],
    device: str = "cpu",
    *,
    parameter: str = "",
    vocabulary: Vocabulary | None = None,
    divisors: int = 1,
    threads: int | None = None,
) -> Iterator[Chunk]:
    """Yield (offset, uint8 [n]) chunks that cover exactly the encoded size, in ascending order.

    A chunk holds about 4 MiB, or one row where a row is longer. `parameter` is the logical name
    (`specs/inventories.md`): it decides centre and spread of the values, see `distributions`.
    `vocabulary` bounds the ids of an int32 tensor, which becomes an ascending list of distinct
    ids with every special id in it.

    The bytes depend on format, shape, parameter, vocabulary, `seed_key` and the kind of device
    ("cpu" or "cuda", which draw from different generators), and on nothing else: neither on
    `threads` nor on what was drawn before. Errors as `geometry.plan_tensor`, and UsageError when
    the ids do not fit.
    """
    if format == nf.INT32:
        return _fill_ids(layout, shape, seed_key, vocabulary)
    fills = plan_fills(format, layout, shape, parameter, divisors)
    return stream_fills(fills, seed_key, open_worker(device, threads))


def open_worker(device: str = "cpu", threads: int | None = None) -> BlockWorker:
    """Return the worker of a device: cpu, cuda or cuda:N. Only CUDA imports torch."""
    kind, colon, index = device.partition(":")
    if device == "cpu":
        return CpuBlocks(threads)
    if kind != "cuda" or (colon and not index.isdecimal()):
        raise UsageError("unknown device", got=device, want="cpu, cuda or cuda:N")
    return CudaBlocks(device)


def stream_fills(
    fills: tuple[PlaneFill, ...], seed_key: tuple[int, ...], worker: BlockWorker
) -> Iterator[Chunk]:
    """Yield the chunks of planes laid out in ascending order, zeros in the gaps between them."""
    position = 0
    for index, fill in enumerate(fills):
        if fill.offset > position:
            yield position, np.zeros(fill.offset - position, np.uint8)
            position = fill.offset
        for block in draw_plane(fill, (*seed_key, index), worker):
            yield position, block
            position += block.size


def draw_plane(
    fill: PlaneFill, seed_key: tuple[int, ...], worker: BlockWorker
) -> Iterator[np.ndarray]:
    """Yield the uint8 blocks of one plane."""
    if fill.constant is not None:
        return iter([np.frombuffer(fill.constant, np.uint8)])
    return worker.draw(fill, seed_key, rows_per_block(fill))


def rows_per_block(fill: PlaneFill) -> int:
    """Return how many rows of a plane are drawn from one generator."""
    return max(1, BLOCK_BYTES // fill.row_bytes)


def _fill_ids(
    layout: str, shape: tuple[int, ...], seed_key: tuple[int, ...], vocabulary: Vocabulary | None
) -> Iterator[Chunk]:
    # Checks layout and rank; a list of ids has one size.
    plan_fills(nf.INT32, layout, shape, "")
    (rows,) = shape
    ids = (vocabulary or Vocabulary()).choose_ids(rows, seed_sequence(seed_key))
    yield 0, ids.astype("<i4").view(np.uint8)
