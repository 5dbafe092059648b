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
# From 10,000 values on, the linear algebra library would spread a product over threads of its own,
# which meet after every product: slow, collapsing on a busy machine, and in no fixed order.
_RUN_VALUES = 8192
_CHUNK_RUNS = 16
F64 = NDArray[np.float64]


class SumScratch:
    """Buffers for one thread: values in float64 as [runs, 8192], zeros past the last one."""

    def __init__(self, most: int = _CHUNK_RUNS * _RUN_VALUES) -> None:
        """`most` is the number of values that will ever be added at a time."""
        runs = min(_CHUNK_RUNS, max(1, -(-most // _RUN_VALUES)))
        self.values = runs * _RUN_VALUES
        self._buffers = np.empty((3, self.values))

    def fill(self, a: NDArray[Any], b: NDArray[Any]) -> tuple[F64, F64, F64]:
        """Return at most `values` values, others, and their differences, in whole runs."""
        runs = -(-a.size // _RUN_VALUES)
        buffers = self._buffers[:, : runs * _RUN_VALUES]
        buffers[:2, a.size :] = 0
        buffers[0, : a.size] = a
        buffers[1, : a.size] = b
        np.subtract(buffers[0], buffers[1], out=buffers[2])
        left, right, gap = buffers.reshape(3, runs, _RUN_VALUES)
        return left, right, gap


def _dot(a: F64, b: F64) -> float:
    """Return the sum of products: of each run first, then of the runs."""
    return float(np.matmul(a[:, None, :], b[:, :, None]).sum())


class ErrorSums:
    """Sums over pairs of source and stored values, in float64.

    They do not depend on the number of threads: products are summed by runs of 8192 values.
    """

    def __init__(self) -> None:
        self.count = 0
        self.squares = self.stored_squares = self.products = self.errors = self.largest = 0.0

    def add(
        self, source: NDArray[Any], stored: NDArray[Any], scratch: SumScratch | None = None
    ) -> None:
        """Count values of equal shape; `scratch` spares an allocation where calls are many."""
        a, b = source.reshape(-1), stored.reshape(-1)
        scratch = scratch or SumScratch(a.size)
        with np.errstate(over="ignore", invalid="ignore"):
            for begin in range(0, a.size, scratch.values):
                end = min(begin + scratch.values, a.size)
                self._add_chunk(*scratch.fill(a[begin:end], b[begin:end]))
        self.count += a.size

    def merge(self, other: ErrorSums) -> None:
        """Add the sums over other values."""
        for name in ("count", "squares", "stored_squares", "products", "errors"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.largest = float(np.maximum(self.largest, other.largest))

    def _add_chunk(self, a: F64, b: F64, gap: F64) -> None:
        self.squares += _dot(a, a)
        self.stored_squares += _dot(b, b)
        self.products += _dot(a, b)
        self.errors += _dot(gap, gap)
        # Unlike `max`, these carry a NaN on.
        self.largest = float(np.maximum(self.largest, np.maximum(gap.max(), -gap.min())))

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
