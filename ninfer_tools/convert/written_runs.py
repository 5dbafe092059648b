"""Checksums of what was written, and whether it is still there (rule V-171)."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

_BLOCK_BYTES = 4 << 20


class WrittenRuns:
    """The pieces of one object, joined to runs: `(begin, end, CRC-32)` of bytes [begin, end).

    Pieces come in any order; those that continue a run, as those of a plane do, extend it.
    """

    def __init__(self) -> None:
        self._runs: dict[int, tuple[int, int]] = {}  # end -> begin, CRC-32

    def add(self, at: int, data: memoryview) -> None:
        """Add a piece that was written `at` bytes behind the object's start."""
        if data.nbytes:
            begin, before = self._runs.pop(at, (at, 0))
            self._runs[at + data.nbytes] = begin, zlib.crc32(data, before)

    def as_record(self) -> list[list[int]]:
        return sorted([begin, end, check] for end, (begin, check) in self._runs.items())


def is_kept(record: Any, size: int, read: Callable[[int, int], bytes]) -> bool:
    """Tell whether an object of `size` bytes is what `record` (of `as_record`) says.

    `read(at, count)` returns bytes of the object, fewer where there are none.
    """
    place = 0
    for begin, end, check in record or ():
        if begin != place or end <= begin:
            return False
        found = 0
        for at in range(begin, end, _BLOCK_BYTES):
            found = zlib.crc32(read(at, min(_BLOCK_BYTES, end - at)), found)
        if found != check:
            return False
        place = end
    return place == size
