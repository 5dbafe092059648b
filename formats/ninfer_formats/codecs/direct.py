"""bf16, fp32 and int32: every value is one little-endian word (rules NF-10 to NF-12)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import rounding
from ninfer_formats.errors import NumericError, UsageError

WORD_TYPES = {nf.BF16: np.dtype("<u2"), nf.FP32: np.dtype("<u4"), nf.INT32: np.dtype("<u4")}

_INT32 = np.iinfo(np.int32)


def encode(values: NDArray[Any], format: str) -> NDArray[Any]:
    """Return the words of `values`, shape kept.

    bf16 and fp32 take float32, float16 or bfloat16 words (uint16); int32 takes any integer type.
    Raises NumericError for an integer outside int32 and UsageError for a wrong type.
    """
    if format == nf.INT32:
        return _encode_int32(values)
    if format == nf.FP32:
        return np.ascontiguousarray(rounding.widen(values)).view("<u4")
    if values.dtype == np.uint16:
        return values.astype("<u2", copy=False)
    return rounding.round_to_bf16(rounding.widen(values)).astype("<u2", copy=False)


def decode(words: NDArray[Any], format: str) -> NDArray[Any]:
    """Return float32 values (int32 for int32) of little-endian `words`, bit patterns kept."""
    if format == nf.BF16:
        return rounding.widen_bf16(words)
    return words.view("<i4" if format == nf.INT32 else "<f4").astype(
        np.int32 if format == nf.INT32 else np.float32, copy=False
    )


def find_non_finite(words: NDArray[Any], format: str) -> NDArray[np.intp]:
    """Return the flat positions of NaN and infinity words of bf16 or fp32."""
    exponent = 0x7F80 if format == nf.BF16 else 0x7F800000
    return np.flatnonzero((words & words.dtype.type(exponent)) == exponent)


def _encode_int32(values: NDArray[Any]) -> NDArray[Any]:
    if not np.issubdtype(values.dtype, np.integer):
        raise UsageError("int32 takes whole numbers", got=values.dtype, want="an integer type")
    outside = np.flatnonzero((values < _INT32.min) | (values > _INT32.max))
    if outside.size:
        first = int(outside[0])
        raise NumericError(
            "value is outside int32",
            where=f"element {first}",
            got=f"{values.reshape(-1)[first]}, {outside.size} in all",
            want=f"{_INT32.min}..{_INT32.max}",
        )
    return np.ascontiguousarray(values.astype("<i4", copy=False)).view("<u4")
