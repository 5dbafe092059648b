"""Encoded tensors: values to bytes, bytes to values, row ranges, and legality of stored words.

The one entry point of `codecs` and `layouts`. Formats and layouts go by their canonical names
(`ninfer_formats.numeric_formats`); specifications: `specs/numeric-formats.md`, `specs/layouts.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import encoding, legality
from ninfer_formats.codecs.findings import Finding, merge
from ninfer_formats.codecs.holes import find_holes
from ninfer_formats.codecs.importing import import_words
from ninfer_formats.codecs.words import Words, decode_words, unpack_words
from ninfer_formats.errors import UsageError
from ninfer_formats.layouts import rows
from ninfer_formats.layouts.geometry import plan_tensor
from ninfer_formats.layouts.planes import U8, Buffer, gaps_of
from ninfer_formats.layouts.rows import RowView

__all__ = [
    "Finding",
    "RowView",
    "Words",
    "decode_rows",
    "decode_tensor",
    "decode_view",
    "encode_tensor",
    "find_illegal_words",
    "import_words",
    "join_rows",
    "slice_rows",
    "view_rows",
]

_GAP = legality.Fault("gap", "notice", "bytes between planes are not zero")
_DECODE_BYTES = 1 << 18


def encode_tensor(values: NDArray[Any], format: str, method: str | None = None) -> U8:
    """Return the encoded bytes (uint8) of `values` in the format's own layout.

    `values` is float32, float16, or bfloat16 as uint16 words (any integer type for int32); of any
    rank for direct formats and [N, K] otherwise. `method` is one of `encoding.METHODS[format]`,
    the first by default. Raises UsageError for a wrong type or method, ArtifactError for a shape
    the layout cannot hold, and NumericError for values the format cannot hold.
    """
    if format not in encoding.METHODS:
        raise UsageError("unknown numeric format", got=format, want=", ".join(nf.FORMATS))
    known = encoding.METHODS[format]
    method = known[0] if method is None else method
    if method not in known:
        raise UsageError(f"unknown method for {format}", got=method, want=", ".join(known))
    plan_tensor(format, nf.FORMATS[format].layout, values.shape)
    if known == ("cast",):
        return encoding.encode_direct(values, format)
    if format == nf.NVFP4:
        return encoding.encode_nvfp4(values, method)
    return encoding.encode_matrix(values, format)


def decode_tensor(
    buffer: Buffer,
    format: str,
    layout: str,
    shape: tuple[int, ...],
    divisors: int = 1,
    strict: bool = True,
) -> NDArray[Any]:
    """Return the values of an encoded tensor: float32 [shape], or int32 for int32.

    `strict` raises NumericError, naming the first place and the count, when a stored word is not
    legal in the format. Raises ArtifactError when buffer and geometry disagree.
    """
    view = rows.view_tensor(buffer, format, layout, shape, divisors)
    return decode_view(view, 0, view.rows, strict)


def decode_rows(
    buffer: Buffer,
    format: str,
    layout: str,
    shape: tuple[int, ...],
    begin: int,
    end: int,
    divisors: int = 1,
    strict: bool = True,
) -> NDArray[Any]:
    """Return the values of rows `begin` to `end`: [end - begin, *shape[1:]], as `decode_tensor`."""
    view = rows.view_tensor(buffer, format, layout, shape, divisors)
    return decode_view(view, begin, end, strict)


def decode_view(view: RowView, begin: int, end: int, strict: bool = True) -> NDArray[Any]:
    """Return the values of rows `begin` to `end` of a view, as `decode_rows`."""
    rows.check_range(view, begin, end)
    if strict:
        legality.reject_illegal(view, begin, end)
    shape = (end - begin, *view.shape[1:]) if view.shape else ()
    values = np.empty(shape, np.int32 if view.format == nf.INT32 else np.float32)
    flat = values.reshape(end - begin, -1)
    for first, last in rows.row_chunks(view, begin, end, _DECODE_BYTES):
        words = unpack_words(view, first, last)
        flat[first - begin : last - begin] = decode_words(words, view.format)
    return values


def view_rows(
    buffer: Buffer,
    format: str,
    layout: str,
    shape: tuple[int, ...],
    begin: int,
    end: int,
    divisors: int = 1,
) -> RowView:
    """Return the planes of rows `begin` to `end`, without copying where the layout allows it.

    Only NVFP4 scales are copied, when the cut does not fall on 128 rows. Errors as `cut_rows`.
    """
    return rows.cut_rows(rows.view_tensor(buffer, format, layout, shape, divisors), begin, end)


def slice_rows(
    buffer: Buffer,
    format: str,
    layout: str,
    shape: tuple[int, ...],
    begin: int,
    end: int,
    divisors: int = 1,
) -> U8:
    """Return rows `begin` to `end` as the bytes of a tensor of their own."""
    return rows.pack_view(view_rows(buffer, format, layout, shape, begin, end, divisors))


def join_rows(parts: Sequence[RowView]) -> U8:
    """Return the bytes of one tensor with the rows of `parts` in order; see `rows.join_views`."""
    return rows.join_views(parts)


def find_illegal_words(
    buffer: Buffer, format: str, layout: str, shape: tuple[int, ...], divisors: int = 1
) -> list[Finding]:
    """Return everything suspicious in an encoded tensor, one finding per kind.

    Errors: words the format forbids, NaN or infinity in bf16 and fp32, padding that is not zero,
    and holes. Notices: plane gaps that are not zero, long runs of zeros, a tensor of zeros. The
    list is empty for a clean tensor. Raises ArtifactError when buffer and geometry disagree.
    """
    view = rows.view_tensor(buffer, format, layout, shape, divisors)
    found = [*legality.find_illegal(view), *legality.find_non_finite(view), *find_holes(view)]
    for _, gap in gaps_of(buffer, plan_tensor(format, layout, shape, divisors)):
        if gap.any():
            found.append(Finding(_GAP.kind, _GAP.severity, _GAP.message, int((gap != 0).sum())))
    return merge(found)
