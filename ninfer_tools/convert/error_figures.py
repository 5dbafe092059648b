"""How far stored values lie from their source: figures over a sample of rows (rule V-61)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.rounding import widen
from ninfer_formats.inventories.packing import Parent
from ninfer_formats.layouts.block_scale import TILE_ROWS
from ninfer_formats.layouts.geometry import plan_tensor
from ninfer_formats.layouts.planes import blank_tensor
from ninfer_formats.tensors import decode_rows
from ninfer_tools.convert.packing import Piece

_STRIPS, _STRIP_ROWS = 8, 32


class ErrorSums:
    """Sums over pairs of source and stored values, in float64."""

    def __init__(self) -> None:
        self.count = 0
        self.squares = self.stored_squares = self.products = self.errors = self.largest = 0.0

    def add(self, source: NDArray[Any], stored: NDArray[Any]) -> None:
        """Count values of equal shape."""
        a = source.reshape(-1).astype(np.float64)
        b = stored.reshape(-1).astype(np.float64)
        gap = a - b
        self.count += a.size
        self.squares += float(a @ a)
        self.stored_squares += float(b @ b)
        self.products += float(a @ b)
        self.errors += float(gap @ gap)
        self.largest = max(self.largest, float(np.abs(gap).max(initial=0.0)))

    @property
    def relative(self) -> float:
        """The root of squared error over squared source; 0 where both are zero."""
        if not self.errors:
            return 0.0
        return float(np.sqrt(self.errors / self.squares)) if self.squares else float("inf")

    def as_record(self) -> dict[str, float | int]:
        norm = np.sqrt(self.squares * self.stored_squares)
        cosine = float(self.products / norm) if norm else float(self.squares == self.stored_squares)
        return {
            "relative_error": self.relative, "cosine": min(cosine, 1.0),
            "max_error": self.largest, "values": self.count,
        }  # fmt: skip


class ErrorSample:
    """Figures over 32 rows of at most eight tiles of 128 rows, evenly spread over a parent."""

    def __init__(self, parent: Parent) -> None:
        self._parent, self.sums = parent, ErrorSums()
        tiles = -(-parent.shape[0] // TILE_ROWS)
        count = min(_STRIPS, tiles)
        self._begins = [i * tiles // count * TILE_ROWS for i in range(count)]

    def add(
        self,
        begin: int,
        block: NDArray[Any],
        pieces: Iterable[Piece],
        divisor: np.float32 | None,
    ) -> None:
        """Compare the sampled rows of an encoded block, rows from `begin` on, with the block."""
        end = begin + len(block)
        chosen = [first for first in self._begins if begin <= first < end]
        if not chosen:
            return
        shape = (len(block), *self._parent.shape[1:])
        data = self._assemble(shape, pieces, divisor)
        for first in chosen:
            low, high = first - begin, min(first - begin + _STRIP_ROWS, len(block))
            stored = decode_rows(data, self._parent.format, self._parent.layout, shape, low, high)
            self.sums.add(widen(block[low:high]), stored)

    def _assemble(
        self, shape: tuple[int, ...], pieces: Iterable[Piece], divisor: np.float32 | None
    ) -> NDArray[np.uint8]:
        """Return the pieces of a block as a tensor of their own."""
        parent = self._parent
        whole = plan_tensor(parent.format, parent.layout, parent.shape)
        data, planes = blank_tensor(plan_tensor(parent.format, parent.layout, shape))
        for offset, piece in pieces:
            name = next(p.name for p in whole.planes if p.offset <= offset < p.end)
            planes[name].reshape(-1)[:] = piece
        if parent.format == nf.NVFP4 and divisor is not None:
            planes["divisor"].reshape(-1)[:] = np.array([divisor], "<f4").view(np.uint8)
        return data
