"""Stored parameters held against their source, with a bound for every format (V-70 to V-76)."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import ArtifactError, NumericError
from ninfer_formats.layouts.block_scale import TILE_ROWS
from ninfer_formats.parameters import Parameter
from ninfer_formats.reader import Artifact
from ninfer_tools.convert.error_bounds import bound_relative_error
from ninfer_tools.convert.error_figures import ErrorSums, SumScratch
from ninfer_tools.convert.ordered_pool import OrderedPool
from ninfer_tools.convert.sources.parameter_source import ParameterSource
from ninfer_tools.convert.sources.quantization import DIRECT
from ninfer_tools.convert.stored_rows import StoredRows

BLOCK_VALUES = 1 << 20
# More threads than this wait for the interpreter lock most of the time.
MOST_THREADS = 8
# The type of a source whose words are those of the format.
_UNCODED = {nf.BF16: "BF16", nf.FP32: "F32"}


@dataclass(frozen=True)
class Comparison:
    """One parameter. `bound` limits the relative error, 0 asks for equal bits; `floor` is the
    root of squared errors that formats with a smallest step may have besides. `unequal` counts
    values whose bits differ; where it is 0, `sums` may hold nothing but the count. With a `fault`
    some words are illegal: the figures are those of the other rows.
    """

    parameter: str
    format: str
    bound: float
    floor: float
    unequal: int
    sums: ErrorSums
    fault: NumericError | None = None

    @property
    def within(self) -> bool:
        if self.fault is not None:
            return False
        if not self.bound:
            return not self.unequal
        return math.sqrt(self.sums.errors) <= self.bound * math.sqrt(self.sums.squares) + self.floor

    @property
    def severity(self) -> float:
        """The relative error in units of the bound."""
        if self.fault is not None:
            return math.inf
        if not self.unequal:
            return 0.0
        return self.sums.relative / self.bound if self.bound else math.inf

    def as_record(self) -> dict[str, Any]:
        fault = {} if self.fault is None else {"fault": str(self.fault)}
        return {
            "parameter": self.parameter, "format": self.format, "bound": self.bound,
            "within": self.within, "unequal_values": self.unequal, **self.sums.as_record(), **fault,
        }  # fmt: skip


def compare_parameters(
    artifact: Artifact,
    sources: Mapping[str, ParameterSource],
    samples: int | None = None,
    threads: int | None = None,
    advance: Callable[[int], None] = lambda values: None,
) -> list[Comparison]:
    """Compare every bound parameter with its source, `samples` evenly spread rows of each or all.

    Token ids of a proposal head have no source and are left out. `advance` is told how many
    values were compared. The result does not depend on `threads`. Raises ArtifactError when the
    artifact has a parameter that the source does not, or of another size. Illegal words are the
    `fault` of their parameter and hide no other.
    """
    names = [name for name in artifact.bindings if name != "proposal/token_ids"]
    unknown = [name for name in names if name not in sources]
    missing = [name for name in sources if name not in artifact.bindings]
    for what, odd in (("the source does not have", unknown), ("the artifact lacks", missing)):
        if odd:
            raise ArtifactError(f"{what} {odd[0]}", path=artifact.path, got=f"{len(odd)} such")
    pairs = {name: _Pair(artifact.parameter(name), sources[name]) for name in names}
    twins = _find_twins(artifact, sources)
    blocks = (
        (pair, block)
        for name, pair in pairs.items() if name not in twins for block in pair.blocks(samples)
    )  # fmt: skip
    local, threads = _ThreadScratch(), threads or count_threads()
    with OrderedPool(threads, 3 * threads, "verify") as pool:
        results = pool.stream(lambda pair, block: pair.compare(block, local.scratch), blocks)
        for (pair, block), result in results:
            pair.add(result)
            advance(sum(end - begin for begin, end in block) * pair.source.columns)
    found = {name: pair.conclude(samples) for name, pair in pairs.items() if name not in twins}
    return [replace(found[twins.get(name, name)], parameter=name) for name in names]


def _find_twins(artifact: Artifact, sources: Mapping[str, ParameterSource]) -> dict[str, str]:
    """Return parameters that are another one twice over: one stored weight, one object."""
    return {
        name: source.shared_with
        for name, source in sources.items()
        if source.shared_with is not None
        and artifact.bindings[name] == artifact.bindings.get(source.shared_with)
    }


def count_values(sources: Mapping[str, ParameterSource], samples: int | None) -> int:
    """Return how many values `compare_parameters` will report to `advance`, at most."""
    return sum(s.columns * min(s.rows, samples or s.rows) for s in sources.values())


def count_threads() -> int:
    """Return how many threads compare when nobody says."""
    return min(MOST_THREADS, os.cpu_count() or 1)


Block = list[tuple[int, int]]


@dataclass
class _Result:
    """Sums over a block. Values of ranges that were equal as words are only counted."""

    sums: ErrorSums
    unequal: int = 0
    skipped: int = 0
    fault: NumericError | None = None


class _ThreadScratch(threading.local):
    def __init__(self) -> None:
        self.scratch = SumScratch()


class _Pair:
    """A stored parameter and its source, and what has been found so far."""

    def __init__(self, parameter: Parameter, source: ParameterSource) -> None:
        size = sum(part.end - part.begin for part in parameter.parts)
        if size != source.rows * source.columns:
            raise ArtifactError(
                "parameter has another size than its source", path=parameter.artifact.path,
                where=parameter.name, got=size, want=source.rows * source.columns,
            )  # fmt: skip
        self.name, self.source = parameter.name, source
        self._stored = StoredRows(parameter, source.columns)
        self._file = _find_file(parameter)
        self._found = _Result(ErrorSums())

    def blocks(self, samples: int | None) -> Iterator[Block]:
        """Yield row ranges of about 1M values together."""
        rows, count = self.source.rows, max(1, BLOCK_VALUES // self.source.columns)
        if samples is not None and samples < rows:
            chosen = [i * rows // samples for i in range(samples)]
            for at in range(0, samples, count):
                yield [(row, row + 1) for row in chosen[at : at + count]]
            return
        # Scales of NVFP4 lie in tiles of 128 rows; cutting one means decoding it twice.
        step = max(count // TILE_ROWS, 1) * TILE_ROWS
        for begin in range(0, rows, step):
            yield [(begin, min(begin + step, rows))]

    def compare(self, block: Block, scratch: SumScratch, as_words: bool = True) -> _Result:
        result = _Result(ErrorSums())
        try:
            self._compare(block, scratch, as_words, result)
        except _IllegalWords as illegal:
            result = _Result(ErrorSums(), fault=illegal.fault)
            result.unequal = sum(end - begin for begin, end in block) * self.source.columns
        return result

    def _compare(self, block: Block, scratch: SumScratch, as_words: bool, result: _Result) -> None:
        left = [r for r in block if not (as_words and self._is_equal(*r))]
        result.skipped = len(block) - len(left)
        result.sums.count = sum(end - begin for begin, end in block) * self.source.columns
        if left:
            values = _join([self.source.read_values(*r).reshape(-1) for r in left])
            found = _join([self._read(*r) for r in left])
            result.sums.count -= values.size
            result.sums.add(values, found, scratch)
            result.unequal = int(np.count_nonzero(values.view("<u4") != found.view("<u4")))

    def _read(self, begin: int, end: int) -> NDArray[np.float32]:
        try:
            return self._stored.read(begin, end)
        except NumericError as error:
            # Of the stored words only: a fault of the source is no parameter's of the artifact.
            raise _IllegalWords(error) from None

    def add(self, result: _Result) -> None:
        self._found.sums.merge(result.sums)
        self._found.unequal += result.unequal
        self._found.skipped += result.skipped
        self._found.fault = self._found.fault or result.fault

    def conclude(self, samples: int | None) -> Comparison:
        fault = self._place(self._found.fault)
        if self._found.unequal and self._found.skipped and fault is None:
            # The figures are about all values, so those that were only counted are needed now.
            self._found, scratch = _Result(ErrorSums()), SumScratch()
            for block in self.blocks(samples):
                self.add(self.compare(block, scratch, as_words=False))
        sums, format = self._found.sums, self._stored.format
        bound = bound_relative_error(format, self.source)
        floor = self._stored.step() * math.sqrt(sums.count) if bound else 0.0
        return Comparison(self.name, format, bound, floor, self._found.unequal, sums, fault)

    def _place(self, fault: NumericError | None) -> NumericError | None:
        """Return a fault with the parameter's name and the file that holds it."""
        if fault is not None:
            fault.path, fault.where = self._file, self.name
        return fault

    def _is_equal(self, begin: int, end: int) -> bool:
        if self.source.kind != DIRECT or self.source.dtype != _UNCODED.get(self._stored.format):
            return False
        return self._stored.holds(self.source.read_words(begin, end), begin)


class _IllegalWords(Exception):
    def __init__(self, fault: NumericError) -> None:
        super().__init__(str(fault))
        self.fault = fault


def _find_file(parameter: Parameter) -> Path:
    """Return the file in which the first object of a parameter begins."""
    payload, tensor = parameter.artifact.payload, parameter.parts[0].tensor
    extents = payload.extents(tensor.offset, tensor.bytes)
    return payload.file_path(extents[0].file) if extents else parameter.artifact.path


def _join(parts: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.ascontiguousarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)
