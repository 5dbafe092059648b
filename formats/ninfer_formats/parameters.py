"""Logical parameters: ranges of stored tensors resolved to row views and values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ninfer_formats.directory import Binding, Tensor

if TYPE_CHECKING:
    from ninfer_formats.reader import Artifact
    from ninfer_formats.tensors import RowView


@dataclass(frozen=True)
class ParameterPart:
    """A half-open range of C-order elements of one stored tensor."""

    tensor: Tensor
    begin: int
    end: int

    @property
    def row_elements(self) -> int:
        """Elements of one row: everything behind the first axis."""
        return math.prod(self.tensor.shape[1:])

    @property
    def is_whole_rows(self) -> bool:
        return self.begin % self.row_elements == 0 and self.end % self.row_elements == 0

    @property
    def rows(self) -> tuple[int, int]:
        """Half-open range of rows that covers the elements."""
        return self.begin // self.row_elements, -(-self.end // self.row_elements)


@dataclass(frozen=True)
class Parameter:
    """One logical parameter. `shape` follows from the parts: rows of equal width stack up, any
    other mixture is flat (the directory itself gives no parameter shapes)."""

    name: str
    shape: tuple[int, ...]
    parts: tuple[ParameterPart, ...]
    artifact: Artifact

    def views(self) -> tuple[RowView, ...]:
        """Return one view of the covering rows per part, copied only where the layout cannot be
        cut there (`RowView` says so per plane)."""
        from ninfer_formats.tensors import view_rows  # the codecs: not needed to look at a file

        return tuple(
            view_rows(
                self.artifact.payload_of(part.tensor.id),
                part.tensor.format,
                part.tensor.layout,
                part.tensor.shape,
                *part.rows,
                divisors=part.tensor.divisors,
            )
            for part in self.parts
        )

    def decode(self) -> np.ndarray:
        """Return the values, float32 (int32 for int32 tensors), in the parameter's shape."""
        values = [self._decode_part(part) for part in self.parts]
        return (values[0] if len(values) == 1 else np.concatenate(values)).reshape(self.shape)

    def _decode_part(self, part: ParameterPart) -> np.ndarray:
        from ninfer_formats.tensors import decode_rows

        first, last = part.rows
        values = decode_rows(
            self.artifact.payload_of(part.tensor.id),
            part.tensor.format,
            part.tensor.layout,
            part.tensor.shape,
            first,
            last,
            divisors=part.tensor.divisors,
        ).reshape(-1)
        skip = part.begin - first * part.row_elements
        return values[skip : skip + part.end - part.begin]


def resolve_parameter(name: str, binding: Binding, artifact: Artifact) -> Parameter:
    """Resolve a binding against the objects of its artifact."""
    parts = []
    for part in binding.parts:
        tensor = artifact.objects[part.object]
        if isinstance(tensor, Tensor):
            parts.append(ParameterPart(tensor, part.begin, part.end))
    return Parameter(name, _infer_shape(binding, parts), tuple(parts), artifact)


def _infer_shape(binding: Binding, parts: list[ParameterPart]) -> tuple[int, ...]:
    if binding.whole:
        return parts[0].tensor.shape
    widths = {part.tensor.shape[1:] for part in parts}
    count = sum(part.end - part.begin for part in parts)
    if len(widths) == 1 and all(part.is_whole_rows for part in parts):
        width = widths.pop()
        return (count // math.prod(width), *width)
    return (count,)
