"""NaN and infinity among weights, found while they stream (rule S-59)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.codecs.rounding import F32
from ninfer_formats.errors import NumericError
from ninfer_tools.convert.sources.parameter_source import EncodedRows, ParameterSource

# Words whose exponent bits are all ones are NaN or infinite.
_EXPONENTS = {"BF16": 0x7F80, "F16": 0x7C00, "F32": 0x7F800000}


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


def check_encoded(source: ParameterSource, first_row: int, rows: EncodedRows) -> None:
    """Raise NumericError when FP8 codes from `read_encoded` hold NaN; NVFP4 codes cannot."""
    if rows.codes.shape[1] == source.columns:
        _refuse(source, first_row, (rows.codes & 0x7F) == 0x7F, rows.codes)


def _refuse(
    source: ParameterSource, first_row: int, bad: NDArray[np.bool_], shown: NDArray[Any]
) -> None:
    count = int(np.count_nonzero(bad))
    if count:
        row, column = divmod(int(np.argmax(bad)), bad.shape[1])
        tensor = source.tensors[0]
        raise NumericError(
            "weight is NaN or infinite", path=tensor.path,
            where=f"{tensor.name} ({source.parameter.name} row {first_row + row}, "
            f"column {column})", got=f"{shown[row, column]}, {count:,} in these rows",
        )  # fmt: skip
