"""Weights that are no numbers, or too large, found while they stream (rules S-59 and S-77)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.grouped_int import CODES
from ninfer_formats.codecs.rounding import F32
from ninfer_formats.errors import NumericError
from ninfer_tools.convert.sources.parameter_source import EncodedRows, ParameterSource

# Words whose exponent bits are all ones are NaN or infinite.
_EXPONENTS = {"BF16": 0x7F80, "F16": 0x7C00, "F32": 0x7F800000}
# The smallest magnitudes that round to infinity: in bfloat16, and as a float16 scale.
_PAST_BF16 = (2 - 2**-8) * 2.0**127
_PAST_F16 = 65520.0


def check_values(source: ParameterSource, first_row: int, values: F32) -> None:
    """Raise NumericError when float32 [n, columns] from `read_values` is not all finite."""
    # The sum of magnitudes is finite unless one is not, or they are enormous.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.dot(values.reshape(-1), values.reshape(-1))):
            return
    _refuse(source, first_row, ~np.isfinite(values), values)


def check_words(source: ParameterSource, first_row: int, words: NDArray[Any]) -> None:
    """Raise NumericError when words [n, columns] from `read_words` are not all finite."""
    mask = words.dtype.type(_EXPONENTS[source.dtype])
    _refuse(source, first_row, (words & mask) == mask, words)


def check_range(source: ParameterSource, first_row: int, values: F32, format: str) -> None:
    """Raise NumericError when finite float32 [n, columns] are too large for a numeric format."""
    limit = _find_limit(format)
    if limit is None:
        return
    if max(float(values.max()), -float(values.min())) >= limit:
        what = f"weight is too large for {format}"
        _refuse(source, first_row, np.abs(values) >= limit, values, what, f"below {limit:.9g}")


def _find_limit(format: str) -> float | None:
    """Return the magnitude from which on a format overflows, None where no float32 does.

    Grouped integers overflow in their scale (NF-25): the largest magnitude over the largest code,
    rounded to float32, which half a unit below is enough for.
    """
    if format in CODES:
        return _PAST_F16 * CODES[format].high * (1 - 2.0**-24)
    return _PAST_BF16 if format in (nf.BF16, nf.FP8) else None


def check_encoded(source: ParameterSource, first_row: int, rows: EncodedRows) -> None:
    """Raise NumericError when FP8 codes from `read_encoded` hold NaN; NVFP4 codes cannot."""
    # Integer codes, which only a recipe can give, are signed.
    if rows.codes.shape[1] == source.columns and rows.codes.dtype == np.uint8:
        _refuse(source, first_row, (rows.codes & 0x7F) == 0x7F, rows.codes)


def _refuse(
    source: ParameterSource,
    first_row: int,
    bad: NDArray[np.bool_],
    shown: NDArray[Any],
    what: str = "weight is NaN or infinite",
    want: str | None = None,
) -> None:
    count = int(np.count_nonzero(bad))
    if count:
        row, column = divmod(int(np.argmax(bad)), bad.shape[1])
        tensor = source.tensors[0]
        raise NumericError(
            what, path=tensor.path,
            where=f"{tensor.name} ({source.parameter.name} row {first_row + row}, "
            f"column {column})", got=f"{_show(shown[row, column])}, {count:,} in these rows",
            want=want,
        )  # fmt: skip


def _show(value: Any) -> str:
    """Return a value as a number, a word as its hexadecimal digits."""
    word = isinstance(value, np.unsignedinteger)
    return f"0x{int(value):0{2 * value.itemsize}X}" if word else f"{value:.9g}"
