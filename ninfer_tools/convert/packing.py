"""Rows of a parent: the rows of its parameters one after the other."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.importing import import_words
from ninfer_formats.inventories.packing import Parent
from ninfer_formats.layouts.block_scale import TILE_ROWS
from ninfer_formats.layouts.geometry import plan_tensor
from ninfer_formats.layouts.planes import split_planes
from ninfer_tools.convert.sources import finite_checks
from ninfer_tools.convert.sources.parameter_source import ParameterSource
from ninfer_tools.convert.sources.quantization import DIRECT

BLOCK_VALUES = 1 << 22
_LOSSLESS = {nf.BF16: ("BF16",), nf.FP32: ("BF16", "F16", "F32")}
Piece = tuple[int, NDArray[np.uint8]]


class ParentRows:
    """Reads blocks of rows of a parent from the sources of its parameters."""

    def __init__(self, parent: Parent, members: Sequence[ParameterSource]) -> None:
        self.parent, self.members = parent, members
        self.rows = parent.shape[0]
        self._ends = list(accumulate(member.rows for member in members))
        self._plain = all(m.kind == DIRECT and m.dtype == "BF16" for m in members)

    @property
    def is_lossless(self) -> bool:
        """Whether the parent's direct format holds every source value."""
        kinds = _LOSSLESS.get(self.parent.format, ())
        return all(m.kind == DIRECT and m.dtype in kinds for m in self.members)

    def blocks(self, values: int = BLOCK_VALUES) -> Iterator[tuple[int, int]]:
        """Yield row ranges of about so many values, cut at multiples of 128 rows."""
        width = max(1, sum(m.rows * m.columns for m in self.members) // self.rows)
        step = max(1, values // width // TILE_ROWS) * TILE_ROWS
        for begin in range(0, self.rows, step):
            yield begin, min(begin + step, self.rows)

    def read(self, begin: int, end: int) -> NDArray[Any]:
        """Return rows [end - begin, *parent.shape[1:]]: bfloat16 words (uint16) or float32."""
        parts = [
            m.read_words(a, b) if self._plain else m.read_values(a, b)
            for m, a, b in self._cut(begin, end)
        ]
        block = parts[0] if len(parts) == 1 else np.concatenate(parts)
        block = np.require(block, requirements=["C", "A"])
        return block.reshape(end - begin, *self.parent.shape[1:])

    def check(self, begin: int, end: int) -> None:
        """Raise NumericError naming tensor, row and column of the first NaN or infinity, or of the
        first value that is too large for the parent's format."""
        for member, a, b in self._cut(begin, end):
            if member.kind == DIRECT:
                finite_checks.check_words(member, a, member.read_words(a, b))
            else:
                finite_checks.check_values(member, a, member.read_values(a, b))
            if not self.is_lossless:
                values = member.read_values(a, b)
                finite_checks.check_range(member, a, values, self.parent.format)

    def import_pieces(self, begin: int, end: int) -> list[Piece]:
        """Return (offset in the parent, bytes) of rows whose stored codes are taken over."""
        rows = []
        for member, a, b in self._cut(begin, end):
            rows.append(member.read_encoded(a, b))
            finite_checks.check_encoded(member, a, rows[-1])
        codes, scales = (np.concatenate(words) for words in zip(*rows, strict=True))
        shape = (end - begin, self.parent.shape[1])
        divisor = self.members[0].weight_divisor
        given = None if divisor is None else float(divisor)
        data = import_words(self.parent.format, shape, codes, scales, given)
        planes = split_planes(data, plan_tensor(self.parent.format, self.parent.layout, shape))
        whole = plan_tensor(self.parent.format, self.parent.layout, self.parent.shape)
        return [
            (plane.offset + _first_row(plane.name, begin) * plane.row_bytes,
             np.ascontiguousarray(planes[plane.name]).reshape(-1))
            for plane in whole.planes
            if plane.name != "divisor" or not begin
        ]  # fmt: skip

    def _cut(self, begin: int, end: int) -> Iterator[tuple[ParameterSource, int, int]]:
        """Yield (member, its rows from, to) of rows of the parent."""
        index = bisect.bisect_right(self._ends, begin)
        while begin < end:
            first = self._ends[index] - self.members[index].rows
            stop = min(end, self._ends[index])
            yield self.members[index], begin - first, stop - first
            begin, index = stop, index + 1


def _first_row(plane: str, begin: int) -> int:
    return {"scales": begin // TILE_ROWS, "divisor": 0}.get(plane, begin)


def plane_gaps(parent: Parent) -> list[Piece]:
    """Return (offset, zeros) of the bytes between the planes of a parent."""
    planes = plan_tensor(parent.format, parent.layout, parent.shape).planes
    return [
        (plane.end, np.zeros(following.offset - plane.end, np.uint8))
        for plane, following in pairwise(planes)
        if following.offset > plane.end
    ]
