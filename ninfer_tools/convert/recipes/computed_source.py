"""Sources whose rows a function of a recipe makes (rules V-129 to V-132)."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.codecs.importing import import_words
from ninfer_formats.codecs.rounding import F32
from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.inventories.parameters import Parameter
from ninfer_tools.convert.recipes.choices import Choices, Computed
from ninfer_tools.convert.recipes.model import ModelParameter, describe_parameter
from ninfer_tools.convert.recipes.recipe_file import explain, read_divisor
from ninfer_tools.convert.rules import Assignment
from ninfer_tools.convert.sources.parameter_source import EncodedRows, ParameterSource
from ninfer_tools.convert.sources.quantization import DIRECT

_FIRST_ROWS = 128


@dataclass(frozen=True)
class RowBlock:
    """What the function of a recipe gets: rows `begin` to `end` of one parameter.

    `values` is float32 [end - begin, columns], a copy that it may change.
    """

    parameter: ModelParameter
    begin: int
    end: int
    values: F32
    _source: ParameterSource = field(repr=False)

    def read(self, begin: int, end: int) -> F32:
        """Return other rows of the same parameter, float32 [end - begin, columns]."""
        if not 0 <= begin < end <= self._source.rows:
            raise UsageError(
                "rows are outside the parameter", got=f"{begin}..{end}",
                want=f"0 <= begin < end <= {self._source.rows}",
            )  # fmt: skip
        return np.array(self._source.read_values(begin, end), np.float32)


@dataclass(frozen=True)
class ComputedSource(ParameterSource):
    """A source of float32 values, or of codes and scales, that are computed from another's.

    Functions are called one at a time, whatever the number of threads that read.
    """

    computed: Computed = field(kw_only=True)
    seen: ModelParameter = field(kw_only=True)
    lock: threading.RLock = field(kw_only=True, compare=False, repr=False)

    @property
    def kind(self) -> str:
        return DIRECT

    @property
    def dtype(self) -> str:
        return "F32"

    @property
    def import_format(self) -> str | None:
        return self.seen.format if self.computed.gives_codes else None

    @property
    def exact(self) -> bool:
        return False

    @property
    def weight_divisor(self) -> np.float32 | None:
        if not self.computed.gives_codes:
            return None
        return self._first_divisor

    @cached_property
    def _first_divisor(self) -> np.float32 | None:
        return self._codes(0, min(_FIRST_ROWS, self.rows))[1]

    @property
    def input_divisor(self) -> np.float32 | None:
        return _plain(self).input_divisor

    def read_values(self, begin: int, end: int) -> F32:
        """Return what the function makes of rows: float32 [end - begin, columns], all finite."""
        if self.computed.gives_codes:
            return _plain(self).read_values(begin, end)
        found = self._call(begin, end)
        try:
            values = np.asarray(found)
            if values.dtype.kind not in "fiu" or values.shape != (end - begin, self.columns):
                raise UsageError(
                    "computed rows do not fit", got=f"{values.dtype} {list(values.shape)}",
                    want=f"numbers [{end - begin}, {self.columns}]",
                )  # fmt: skip
            with np.errstate(over="ignore", invalid="ignore"):
                values = np.ascontiguousarray(values, np.float32)
            if not np.isfinite(values).all():
                raise UsageError("computed rows hold NaN or infinity, as float32")
        except Exception as error:
            raise self._explain(error) from error
        return values

    def read_words(self, begin: int, end: int) -> NDArray[Any]:
        return self.read_values(begin, end).view("<u4")

    def read_encoded(self, begin: int, end: int) -> EncodedRows:
        """Return the codes and scales that the function gives, which the format allows."""
        words, divisor = self._codes(begin, end)
        if divisor != self._first_divisor:
            error = UsageError(
                "divisor is not that of the first rows", got=divisor, want=self._first_divisor
            )
            raise self._explain(error)
        return words

    def _codes(self, begin: int, end: int) -> tuple[EncodedRows, np.float32 | None]:
        found = self._call(begin, end)
        try:
            if not isinstance(found, tuple) or len(found) not in (2, 3):
                want = "(codes, scales) or (codes, scales, divisor)"
                raise UsageError("computed codes do not fit", got=type(found).__name__, want=want)
            codes, scales = map(np.asarray, found[:2])
            given = read_divisor(found[2]) if found[2:] else None
            import_words(self.seen.format, (end - begin, self.columns), codes, scales, given)
        except Exception as error:
            raise self._explain(error) from error
        return EncodedRows(codes, scales), None if given is None else np.float32(given)

    def _call(self, begin: int, end: int) -> Any:
        plain = _plain(self)
        values = np.array(plain.read_values(begin, end), np.float32)
        block = RowBlock(self.seen, begin, end, values, plain)
        try:
            with self.lock:
                return self.computed.function(block)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a recipe may end itself by SystemExit and the like
            raise self._explain(error) from error

    def _explain(self, error: BaseException) -> NinferError:
        return explain(error, self.computed.file.path, self.parameter.name)


def _plain(source: ParameterSource) -> ParameterSource:
    """Return the source without the function."""
    return ParameterSource(**_fields_of(source))


def _fields_of(source: ParameterSource) -> dict[str, Any]:
    return {item.name: getattr(source, item.name) for item in fields(ParameterSource)}


def follow_functions(
    choices: Choices,
    parameters: Sequence[Parameter],
    assigned: Mapping[str, Assignment],
    sources: Mapping[str, ParameterSource],
) -> tuple[Choices, Mapping[str, ParameterSource]]:
    """Return choices and sources with the functions that are called: `--set`, which goes before
    the recipe, may have taken their parameters away."""
    left = {n: c for n, c in choices.computed.items() if assigned[n] == choices.assigned[n]}
    lock, found = threading.RLock(), dict(sources)
    for p in parameters:
        if p.name in left:
            plain = _fields_of(sources[p.name])
            seen = describe_parameter(p, assigned[p.name].format)
            found[p.name] = ComputedSource(**plain, computed=left[p.name], seen=seen, lock=lock)
    return replace(choices, computed=left), found
