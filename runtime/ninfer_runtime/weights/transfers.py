"""What is still to be read: rows of stored tensors, and where they go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from ninfer_formats import numeric_formats as nf
from ninfer_formats.layouts.block_scale import TILE_ROWS
from ninfer_formats.layouts.rows import RowView, cut_rows, view_tensor
from ninfer_formats.parameters import Parameter, ParameterPart
from ninfer_formats.reader import Artifact
from ninfer_formats.tensors import encode_tensor, view_rows
from ninfer_kernels.linear import Matrix


@dataclass(frozen=True)
class RowTransfer:
    """Rows of a stored matrix into all rows of `target`; `requantised` is the format that they
    are encoded in on the way."""

    part: ParameterPart
    target: Matrix
    requantised: str | None = None


@dataclass(frozen=True)
class ValueTransfer:
    """Elements of a stored direct tensor into the flat `target`, converted to its type."""

    part: ParameterPart
    target: torch.Tensor


Transfer = RowTransfer | ValueTransfer


@dataclass(frozen=True)
class Block:
    """Some rows of a transfer: what is staged at a time."""

    view: RowView
    target: Matrix

    @property
    def planes(self) -> dict[str, np.ndarray]:
        """The planes that travel, flat uint8; divisors are placed from the host."""
        planes = self.view.planes.items()
        return {name: plane.reshape(-1) for name, plane in planes if name != "divisor"}

    @property
    def bytes(self) -> int:
        return sum(plane.size for plane in self.planes.values())


def in_file_order(transfers: list[Transfer]) -> list[Transfer]:
    """Return the transfers as the payload lies in the file, so that it is read once, forwards."""
    return sorted(transfers, key=lambda item: (item.part.tensor.offset, item.part.begin))


@dataclass
class StoredRows:
    """Reads the payload of one object at a time: parts of one object follow each other."""

    artifact: Artifact
    _object: str = ""
    _payload: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))

    def view(self, part: ParameterPart) -> RowView:
        """Return the rows of a part; nothing is copied out of a mapped file."""
        tensor = part.tensor
        if tensor.id != self._object:
            self._object, self._payload = tensor.id, self.artifact.payload_of(tensor.id)
        form = tensor.format, tensor.layout, tensor.shape
        return view_rows(self._payload, *form, *part.rows, divisors=tensor.divisors)

    def values(self, part: ParameterPart) -> np.ndarray:
        """Return the elements of a direct part: float32, or int32 for int32 tensors."""
        shape = (part.end - part.begin,)
        return Parameter(part.tensor.id, shape, (part,), self.artifact).decode()


def cut_blocks(rows: StoredRows, transfer: RowTransfer, most: int) -> Iterator[Block]:
    """Yield the blocks of a transfer, each of about `most` bytes; at least a tile of 128 rows."""
    view = rows.view(transfer.part)
    if transfer.requantised is not None:
        view = _requantise(view, transfer.requantised)
    row_bytes = Block(view, transfer.target).bytes / view.rows
    step = max(TILE_ROWS, int(most / row_bytes) // TILE_ROWS * TILE_ROWS)
    for begin, end in _ranges(view.rows, view.rows // max(1, len(view.divisors)), step):
        whole = (begin, end) == (0, view.rows)
        part = view if whole else cut_rows(view, begin, end)
        yield Block(part, transfer.target if whole else transfer.target.cut_rows(begin, end))


def _ranges(rows: int, stack: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of at most `step` rows: whole stacks of one divisor, or parts of one."""
    unit = rows if step >= stack else stack
    step = step // stack * stack if step >= stack else step
    for first in range(0, rows, unit):
        for begin in range(first, first + unit, step):
            yield begin, min(begin + step, first + unit, rows)


def _requantise(view: RowView, format: str) -> RowView:
    """Return rows of a bf16 matrix encoded in `format` by its default method: slow, and right."""
    words = np.ascontiguousarray(view.planes["values"]).view("<u2").reshape(view.shape)
    layout = nf.FORMATS[format].layout
    return view_tensor(encode_tensor(words, format), format, layout, view.shape)
