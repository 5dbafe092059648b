"""Which stored rows hold the rows of a parameter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class RowSelection:
    """Rows of a stored matrix in the order of a parameter: runs (first row, count), or `index`.

    `index` int64 [rows] is for rows that are picked one by one; `runs` is empty then.
    """

    runs: tuple[tuple[int, int], ...]
    index: NDArray[np.int64] | None = None

    @property
    def rows(self) -> int:
        return len(self.index) if self.index is not None else sum(n for _, n in self.runs)

    def take(self, stored: NDArray[Any], begin: int, end: int) -> NDArray[Any]:
        """Return the rows [begin, end); a view where they lie in one run, else a copy of them."""
        if self.index is not None:
            return stored[self.index[begin:end]]
        pieces = [stored[first : first + count] for first, count in self._cut(begin, end)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def numbers(self, begin: int, end: int) -> NDArray[np.int64]:
        """Return the stored row numbers, int64 [end - begin]."""
        if self.index is not None:
            return self.index[begin:end]
        pieces = [np.arange(first, first + count) for first, count in self._cut(begin, end)]
        return np.concatenate(pieces)

    def pick(self, rows: NDArray[Any]) -> RowSelection:
        """Return the selection of some of these rows, by their numbers in the parameter."""
        return RowSelection((), self.numbers(0, self.rows)[rows])

    def _cut(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        at = 0
        for first, count in self.runs:
            low, high = max(begin - at, 0), min(end - at, count)
            if low < high:
                yield first + low, high - low
            at += count


def whole(rows: int) -> RowSelection:
    """Return the selection of the first `rows` rows."""
    return RowSelection(((0, rows),))
