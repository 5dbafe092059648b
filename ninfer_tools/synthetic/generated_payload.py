"""The payload of a synthetic artifact, drawn when it is read."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ninfer_formats.errors import UsageError
from ninfer_formats.payload import Extent
from ninfer_tools.synthetic.artifact_plan import SyntheticPlan
from ninfer_tools.synthetic.block_workers import count_threads, map_ahead
from ninfer_tools.synthetic.payloads import BLOCK_BYTES
from ninfer_tools.synthetic.tensor_blocks import Block


class GeneratedPayload:
    """A `Payload` of one file that does not exist. Bytes equal those that would be written.

    The last span read is kept: parameters that share a tensor read it again and again.
    """

    def __init__(self, plan: SyntheticPlan, path: Path, threads: int | None = None) -> None:
        self._plan, self._path, self._threads = plan, path, count_threads(threads)
        self._file = plan.written.files[0]
        self._ids = list(plan.written.objects)
        self._ends = [item.end for item in plan.written.objects.values()]
        self._last: tuple[int, np.ndarray] = (0, np.empty(0, np.uint8))

    @property
    def bytes(self) -> int:
        """Byte count of the logical payload."""
        return self._file.payload_bytes

    def extents(self, offset: int, count: int) -> list[Extent]:
        """Return the place these bytes would have in the file."""
        return [Extent(0, self._file.start + offset, count)] if count > 0 else []

    def read(self, offset: int, count: int) -> np.ndarray:
        """Return `count` logical bytes from `offset`, drawing the blocks that they touch."""
        begin, data = self._last
        if not begin <= offset <= offset + count <= begin + data.size:
            begin, data = offset, self._draw(offset, count)
            self._last = begin, data
        return data[offset - begin : offset - begin + count]

    def header(self, index: int) -> np.ndarray:
        """Return the bytes in front of the payload, uint8."""
        header = np.zeros(self._file.start, np.uint8)
        header[: len(self._file.header)] = np.frombuffer(self._file.header, np.uint8)
        return header

    def file(self, index: int) -> np.ndarray:
        """Refuse: a whole synthetic file may be far larger than memory."""
        raise UsageError(
            "a synthetic artifact has no file",
            path=self._path,
            remedy="write one with scripts/make_synthetic.py SPEC --artifact FILE",
        )

    def file_path(self, index: int) -> Path:
        """Return the specification, which stands where other artifacts have a path."""
        return self._path

    def _draw(self, offset: int, count: int) -> np.ndarray:
        data = np.zeros(count, np.uint8)
        blocks = self._touched(offset, offset + count)
        if count <= BLOCK_BYTES:
            # One or two blocks, for which threads are not worth starting.
            drawn = map(_draw_block, blocks)
        else:
            drawn = map_ahead(_draw_block, blocks, self._threads)
        for begin, piece in drawn:
            first, last = max(begin, offset), min(begin + piece.size, offset + count)
            data[first - offset : last - offset] = piece[first - begin : last - begin]
        data.setflags(write=False)
        return data

    def _touched(self, begin: int, end: int) -> Iterator[tuple[int, Block]]:
        """Yield (logical offset, block) of every block with a byte in [begin, end)."""
        for name in self._ids[bisect.bisect_right(self._ends, begin) :]:
            start = self._plan.written.objects[name].offset
            if start >= end:
                return
            for block in self._plan.blocks(name):
                if start + block.offset < end and start + block.end > begin:
                    yield start + block.offset, block


def _draw_block(place: tuple[int, Block]) -> tuple[int, np.ndarray]:
    begin, block = place
    return begin, block.draw()
