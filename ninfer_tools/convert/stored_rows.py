"""Rows of a stored parameter, from the tensors that hold them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.layouts.rows import RowView, view_tensor
from ninfer_formats.parameters import Parameter, ParameterPart
from ninfer_formats.tensors import decode_view
from ninfer_tools.convert.error_bounds import smallest_step
from ninfer_tools.convert.nvfp4_rows import decode_nvfp4_rows

_WORD_BYTES = {nf.BF16: 2, nf.FP32: 4}


class StoredRows:
    """A parameter as rows of `columns` values, whatever shapes its tensors have."""

    def __init__(self, parameter: Parameter, columns: int) -> None:
        self.parts, self._columns = parameter.parts, columns
        self._views = [_view(parameter, part) for part in parameter.parts]

    @property
    def format(self) -> str:
        """The format of the first part."""
        return self.parts[0].tensor.format

    def read(self, begin: int, end: int) -> NDArray[np.float32]:
        """Return float32 [(end - begin) * columns]; NumericError for illegal words."""
        found = [_decode(view, first, last) for view, first, last in self._cut(begin, end)]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def holds(self, words: NDArray[Any], begin: int) -> bool:
        """Return whether the rows from `begin` on are stored as just these words, uncoded.

        `words` is uint16 for bf16 and uint32 for fp32, [rows, columns]. False for other formats.
        """
        kind = words.dtype.itemsize
        if any(_WORD_BYTES.get(part.tensor.format) != kind for part in self.parts):
            return False
        source, at = np.ascontiguousarray(words).reshape(-1).view(np.uint8), 0
        for view, first, last in self._cut(begin, begin + len(words)):
            stored = view.planes["values"].reshape(-1)[first * kind : last * kind]
            if not np.array_equal(stored, source[at : at + stored.size]):
                return False
            at += stored.size
        return True

    def step(self) -> float:
        """Return the smallest step of the first part (rule V-74)."""
        return smallest_step(self.format, float(min(self._views[0].divisors, default=1)))

    def _cut(self, begin: int, end: int) -> Iterator[tuple[RowView, int, int]]:
        """Yield (view, its elements from, to) of rows of the parameter."""
        low, high, at = begin * self._columns, end * self._columns, 0
        for part, view in zip(self.parts, self._views, strict=True):
            count = part.end - part.begin
            first, last = max(low - at, 0), min(high - at, count)
            if first < last:
                yield view, part.begin + first, part.begin + last
            at += count


def _view(parameter: Parameter, part: ParameterPart) -> RowView:
    tensor = part.tensor
    data = parameter.artifact.payload_of(tensor.id)
    return view_tensor(data, tensor.format, tensor.layout, tensor.shape, tensor.divisors)


def _decode(view: RowView, begin: int, end: int) -> NDArray[Any]:
    """Return the elements `begin` to `end` of a tensor, flat."""
    width = int(np.prod(view.shape[1:], dtype=np.int64))
    first, last = begin // width, -(-end // width)
    decode = decode_nvfp4_rows if view.format == nf.NVFP4 else decode_view
    rows = decode(view, first, last)
    return rows.reshape(-1)[begin - first * width : end - first * width]
