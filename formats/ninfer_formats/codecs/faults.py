"""Errors that name the first offending place and how many there are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.codecs.rounding import F32
from ninfer_formats.errors import NumericError


def reject_where(
    bad: NDArray[np.bool_], what: str, unit: str, first_row: int, shown: NDArray[Any]
) -> None:
    """Raise NumericError for the first true entry of `bad` [N, M] (M counted in `unit`s)."""
    count = int(np.count_nonzero(bad))
    if count:
        row, column = divmod(int(np.argmax(bad)), bad.shape[1])
        raise NumericError(
            what,
            where=f"row {first_row + row}, {unit} {column}",
            got=f"{shown[row, column]}, {count} {unit}s in all",
        )


def reject_non_finite(largest: F32, values: F32, source: str, first_row: int) -> None:
    """Raise NumericError when `values` [N, K] holds NaN or infinity.

    `largest` holds magnitudes that cover every value, so that the good case costs one look at a
    small array.
    """
    if not np.isfinite(largest).all():
        bad = ~np.isfinite(values)
        reject_where(bad, f"{source} contains NaN or infinity", "column", first_row, values)
