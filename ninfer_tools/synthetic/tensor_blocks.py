"""An encoded tensor as blocks that can be drawn one by one, in any order, on any thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.layouts.geometry import encoded_size
from ninfer_tools.synthetic import payloads
from ninfer_tools.synthetic.block_workers import draw_block
from ninfer_tools.synthetic.plane_fills import PlaneFill, plan_fills
from ninfer_tools.synthetic.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes [offset, offset + bytes) of something stored; `draw` makes them, uint8 [bytes]."""

    offset: int
    bytes: int
    draw: Callable[[], np.ndarray]

    @property
    def end(self) -> int:
        return self.offset + self.bytes


def list_blocks(
    format: str,
    layout: str,
    shape: tuple[int, ...],
    seed_key: tuple[int, ...],
    *,
    parameter: str = "",
    vocabulary: Vocabulary | None = None,
    divisors: int = 1,
) -> Iterator[Block]:
    """Yield the blocks of a tensor, ascending and without holes.

    Together they hold exactly what `payloads.fill_tensor` yields on the CPU for these arguments.
    """
    if format == nf.INT32:
        draw = partial(_draw_whole, format, layout, shape, seed_key, vocabulary)
        yield Block(0, encoded_size(format, layout, shape), draw)
        return
    position = 0
    for index, fill in enumerate(plan_fills(format, layout, shape, parameter, divisors)):
        if fill.offset > position:
            gap = fill.offset - position
            yield Block(position, gap, partial(np.zeros, gap, np.uint8))
        yield from _list_plane(fill, (*seed_key, index))
        position = fill.end


def _list_plane(fill: PlaneFill, seed_key: tuple[int, ...]) -> Iterator[Block]:
    if fill.constant is not None:
        yield from_bytes(fill.constant, fill.offset)
        return
    block_rows = payloads.rows_per_block(fill)
    for index in range(-(-fill.rows // block_rows)):
        first = index * block_rows
        size = min(block_rows, fill.rows - first) * fill.row_bytes
        draw = partial(draw_block, fill, seed_key, block_rows, index)
        yield Block(fill.offset + first * fill.row_bytes, size, draw)


def from_bytes(data: bytes, offset: int = 0) -> Block:
    """Return bytes that are known already as one block."""
    return Block(offset, len(data), partial(np.frombuffer, data, np.uint8))


def _draw_whole(
    format: str,
    layout: str,
    shape: tuple[int, ...],
    seed_key: tuple[int, ...],
    vocabulary: Vocabulary | None,
) -> np.ndarray:
    chunks = payloads.fill_tensor(format, layout, shape, seed_key, vocabulary=vocabulary)
    return np.concatenate([chunk for _, chunk in chunks])
