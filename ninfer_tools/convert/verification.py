"""Stored parameters held against their source, with a bound for every format (V-70 to V-76)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.grouped_int import CODES
from ninfer_formats.errors import ArtifactError
from ninfer_formats.parameters import Parameter
from ninfer_formats.reader import Artifact
from ninfer_formats.tensors import decode_rows
from ninfer_tools.convert.error_figures import ErrorSums
from ninfer_tools.convert.sources.parameter_source import ParameterSource
from ninfer_tools.convert.sources.quantization import DIRECT

BLOCK_VALUES = 1 << 20
# Two float32 roundings of the same product (rule S-55), and bfloat16 rounding.
_IMPORTED, _BF16 = 2.0**-23, 2.0**-8
_NVFP4, _FP8 = 0.3, 0.0655


@dataclass(frozen=True)
class Comparison:
    """One parameter. `bound` limits the relative error, 0 asks for equal bits; `floor` is the
    root of squared errors that formats with a smallest step may have besides. `unequal` counts
    values whose bits differ.
    """

    parameter: str
    format: str
    bound: float
    floor: float
    unequal: int
    sums: ErrorSums

    @property
    def within(self) -> bool:
        if not self.bound:
            return not self.unequal
        return math.sqrt(self.sums.errors) <= self.bound * math.sqrt(self.sums.squares) + self.floor

    @property
    def severity(self) -> float:
        """The relative error in units of the bound."""
        if not self.unequal:
            return 0.0
        return self.sums.relative / self.bound if self.bound else math.inf

    def as_record(self) -> dict[str, Any]:
        return {
            "parameter": self.parameter, "format": self.format, "bound": self.bound,
            "within": self.within, "unequal_values": self.unequal, **self.sums.as_record(),
        }  # fmt: skip


def compare_parameters(
    artifact: Artifact, sources: Mapping[str, ParameterSource], samples: int | None = None
) -> list[Comparison]:
    """Compare every bound parameter with its source, `samples` evenly spread rows of each or all.

    Token ids of a proposal head have no source and are left out. Raises ArtifactError when the
    artifact has a parameter that the source does not, or of another size.
    """
    names = [name for name in artifact.bindings if name != "proposal/token_ids"]
    unknown = [name for name in names if name not in sources]
    missing = [name for name in sources if name not in artifact.bindings]
    for what, odd in (("the source does not have", unknown), ("the artifact lacks", missing)):
        if odd:
            raise ArtifactError(f"{what} {odd[0]}", path=artifact.path, got=f"{len(odd)} such")
    return [_compare(artifact.parameter(name), sources[name], samples) for name in names]


def _compare(parameter: Parameter, source: ParameterSource, samples: int | None) -> Comparison:
    size = sum(part.end - part.begin for part in parameter.parts)
    if size != source.rows * source.columns:
        raise ArtifactError(
            "parameter has another size than its source", path=parameter.artifact.path,
            where=parameter.name, got=size, want=source.rows * source.columns,
        )  # fmt: skip
    sums, stored, unequal = ErrorSums(), _StoredRows(parameter, source.columns), 0
    for begin, end in _row_blocks(source, samples):
        values = source.read_values(begin, end)
        found = stored.read(begin, end)
        sums.add(values, found)
        bits = (np.ascontiguousarray(item).reshape(-1).view("<u4") for item in (values, found))
        unequal += int(np.count_nonzero(np.not_equal(*bits)))
    format = parameter.parts[0].tensor.format
    bound = _bound(format, source)
    floor = stored.step() * math.sqrt(sums.count) if bound else 0.0
    return Comparison(parameter.name, format, bound, floor, unequal, sums)


def _row_blocks(source: ParameterSource, samples: int | None) -> Iterator[tuple[int, int]]:
    if samples is not None and samples < source.rows:
        for i in range(samples):
            row = i * source.rows // samples
            yield row, row + 1
        return
    step = max(1, BLOCK_VALUES // source.columns)
    for begin in range(0, source.rows, step):
        yield begin, min(begin + step, source.rows)


class _StoredRows:
    """Rows of a parameter, decoded from the parts that hold them."""

    def __init__(self, parameter: Parameter, columns: int) -> None:
        self._parts, self._columns = parameter.parts, columns
        self._data = [parameter.artifact.payload_of(p.tensor.id) for p in parameter.parts]

    def read(self, begin: int, end: int) -> NDArray[Any]:
        """Return float32 [(end - begin) * columns]."""
        low, high, at, found = begin * self._columns, end * self._columns, 0, []
        for part, data in zip(self._parts, self._data, strict=True):
            count = part.end - part.begin
            first, last = max(low - at, 0), min(high - at, count)
            if first < last:
                found.append(self._decode(part, data, part.begin + first, part.begin + last))
            at += count
        return found[0] if len(found) == 1 else np.concatenate(found)

    def step(self) -> float:
        """Return the largest error of values far below the largest one of their tensor."""
        tensor = self._parts[0].tensor
        if tensor.format in CODES:
            return CODES[tensor.format].high * 2.0**-24
        if tensor.format == nf.NVFP4:
            divisor = self._data[0][-4:].copy().view("<f4")[0]
            return 6 * 2.0**-10 / float(divisor)
        return 0.0

    def _decode(self, part: Any, data: NDArray[np.uint8], begin: int, end: int) -> NDArray[Any]:
        tensor, width = part.tensor, part.row_elements
        first, last = begin // width, -(-end // width)
        rows = decode_rows(
            data, tensor.format, tensor.layout, tensor.shape, first, last, tensor.divisors
        )
        return rows.reshape(-1)[begin - first * width : end - first * width]


def _bound(format: str, source: ParameterSource) -> float:
    """Return the bound of the relative error of a stored parameter, 0 where bits are equal."""
    if source.kind != DIRECT and source.import_format == format and not _is_picked(source):
        return 0.0 if source.exact else _IMPORTED
    if format == nf.FP32:
        return 0.0
    if format == nf.BF16:
        return 0.0 if source.kind == DIRECT and source.dtype == "BF16" else _BF16
    if format in CODES:
        # All values of a group but the largest lie half a step off, at half a step.
        spread = (nf.FORMATS[format].group - 1) / 4
        return 1.02 * math.sqrt(spread / (CODES[format].high ** 2 + spread))
    return _NVFP4 if format == nf.NVFP4 else _FP8


def _is_picked(source: ParameterSource) -> bool:
    return source.parameter.residency == "proposal"
