"""What is still to be read: rows of stored tensors, and where they go."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from ninfer_formats.codecs import nvfp4
from ninfer_formats.codecs.grouped_int import CODES
from ninfer_formats.layouts.block_scale import TILE_ROWS
from ninfer_formats.layouts.rows import RowView, cut_rows
from ninfer_formats.parameters import Parameter, ParameterPart
from ninfer_formats.reader import Artifact
from ninfer_formats.tensors import encode_tensor, view_rows
from ninfer_kernels.linear import Matrix
from ninfer_runtime.weights.encoding import find_largest

# What is encoded at a time: intermediate results are several times as large.
_ENCODED_BYTES = 1 << 20

# Above these, an fp16 scale is infinite.
_LARGEST = {format: 65519.0 * code.high for format, code in CODES.items()}


@dataclass(frozen=True)
class RowTransfer:
    """Rows of a stored matrix into rows `begins[0]` .. of `targets[0]`; `requantised` is the
    format that they are encoded in on the way.

    With several targets, runs of `run` rows go to them in turn: gate and up rows of an expert lie
    one after the other, those of a layer in two matrices.
    """

    part: ParameterPart
    targets: tuple[Matrix, ...]
    begins: tuple[int, ...]
    run: int
    requantised: str | None = None


@dataclass(frozen=True)
class ValueTransfer:
    """Elements of a stored direct tensor into the flat `target`, converted to its type."""

    part: ParameterPart
    target: torch.Tensor


Transfer = RowTransfer | ValueTransfer


@dataclass(frozen=True)
class Encoding:
    """A format that rows are encoded in on the way, and NVFP4's divisor of the whole parameter."""

    format: str
    divisor: float


@dataclass(frozen=True)
class Block:
    """Some rows of a transfer: what is staged at a time. Runs of `run` rows go in turn to the rows
    of `targets` from `begins` on."""

    view: RowView
    targets: tuple[Matrix, ...]
    begins: tuple[int, ...]
    run: int
    encoding: Encoding | None = None

    @cached_property
    def planes(self) -> dict[str, np.ndarray]:
        """The planes that travel, flat uint8; divisors are placed from the host."""
        planes = self.view.planes.items()
        return {name: plane.reshape(-1) for name, plane in planes if name != "divisor"}

    @cached_property
    def bytes(self) -> int:
        return sum(plane.size for plane in self.planes.values())


def interleave(transfers: Iterable[Transfer]) -> Iterator[Transfer]:
    """Yield transfers in file order with those joined that follow each other in one tensor, have
    equally many rows, and go to the same matrices in turn: experts come by the thousand."""
    group: list[RowTransfer] = []
    for transfer in transfers:
        if isinstance(transfer, RowTransfer) and _continues(group, transfer):
            group.append(transfer)
            continue
        yield from _join(group)
        group = []
        if isinstance(transfer, RowTransfer):
            group = [transfer]
        else:
            yield transfer
    yield from _join(group)


def _continues(group: list[RowTransfer], new: RowTransfer) -> bool:
    if not group or new.requantised is not None or group[0].requantised is not None:
        return False
    last = group[-1]
    follows = last.part.tensor is new.part.tensor and last.part.end == new.part.begin
    return follows and last.run == new.run and len(new.targets) == len(last.targets) == 1


def _join(group: list[RowTransfer]) -> Iterator[RowTransfer]:
    """Yield a group as one transfer when its targets come in turn, else as it is."""
    period = 1
    while period < len(group) and group[period].targets[0] is not group[0].targets[0]:
        period += 1
    if len(group) < 2 or not _takes_turns(group, period):
        yield from group
        return
    part = ParameterPart(group[0].part.tensor, group[0].part.begin, group[-1].part.end)
    first = group[:period]
    targets = tuple(one.targets[0] for one in first)
    begins = tuple(one.begins[0] for one in first)
    yield RowTransfer(part, targets, begins, group[0].run)


def _takes_turns(group: list[RowTransfer], period: int) -> bool:
    if len(group) % period:
        return False
    return all(
        one.targets[0] is group[i % period].targets[0]
        and one.begins[0] == group[i % period].begins[0] + i // period * one.run
        for i, one in enumerate(group)
    )


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
    """Yield the blocks of a transfer, each of about `most` bytes; at least a tile of 128 rows, and
    with several targets a run for each."""
    view, encoding = rows.view(transfer.part), None
    if transfer.requantised is not None:
        encoding, most = _choose_encoding(view, transfer.requantised), _ENCODED_BYTES
    whole = Block(view, transfer.targets, transfer.begins, transfer.run, encoding)
    count = len(transfer.targets)
    stack = view.rows // max(1, len(view.divisors))
    unit = TILE_ROWS
    if count > 1:  # no cut inside a turn, nor inside a stack of one divisor
        turn = count * transfer.run
        unit = math.lcm(turn, TILE_ROWS, 1 if stack == view.rows else stack)
        stack = view.rows if stack == view.rows else math.lcm(turn, stack)
    step = max(unit, int(most / (whole.bytes / view.rows)) // unit * unit)
    for begin, end in _ranges(view.rows, stack, step):
        if (begin, end) == (0, view.rows):
            yield whole
            continue
        begins = tuple(first + begin // count for first in transfer.begins)
        run = transfer.run if count > 1 else end - begin
        yield Block(cut_rows(view, begin, end), transfer.targets, begins, run, encoding)


def _ranges(rows: int, stack: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of at most `step` rows: whole stacks of one divisor, or parts of one."""
    unit = rows if step >= stack else stack
    step = step // stack * stack if step >= stack else step
    for first in range(0, rows, unit):
        for begin in range(first, first + unit, step):
            yield begin, min(begin + step, first + unit, rows)


def _choose_encoding(view: RowView, format: str) -> Encoding:
    """Return how rows of a bf16 matrix are encoded; NumericError for values that cannot be."""
    words = view.planes["values"].view("<u2")
    largest = find_largest(words)
    if not math.isfinite(largest) or largest > _LARGEST.get(format, math.inf):
        # Says which value it is.
        encode_tensor(np.ascontiguousarray(words).reshape(view.shape), format)
    return Encoding(format, float(nvfp4.choose_divisor(largest)))
