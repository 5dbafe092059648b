"""Stored words that a numeric format forbids, found on the packed planes (rule NF-60).

Works on planes and not on unpacked codes: scales are small, so a scan costs little more than
reading the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import direct, fp8_row, nvfp4
from ninfer_formats.codecs.findings import Fault, Finding, find_in, merge
from ninfer_formats.errors import NumericError
from ninfer_formats.layouts import block_scale, row_scale, row_split
from ninfer_formats.layouts.contiguous import unpack as unpack_contiguous
from ninfer_formats.layouts.planes import U8
from ninfer_formats.layouts.rows import RowView, row_chunks, row_divisors, scale_groups

CHUNK_BYTES = 1 << 20
_FLOAT32_MAX = float(np.finfo(np.float32).max)
# No value overflows up to this FP8 row scale, nor from this NVFP4 divisor on.
_SAFE_SCALE_WORD = int(np.float32(_FLOAT32_MAX / 448).view(np.uint32) >> 16)
_SAFE_DIVISOR = np.float32(6 * 448 / _FLOAT32_MAX)

NEGATIVE_SCALE = Fault("negative_scale", "error", "scale has its sign bit set")
NON_FINITE_SCALE = Fault("non_finite_scale", "error", "scale is NaN or infinite")
ZERO_SCALE = Fault("zero_scale", "error", "scale is zero but codes are not")
# The product is a plain zero, so nothing is broken; encoders do not write it, though.
ZERO_BLOCK_SCALE = Fault("zero_scale", "notice", "block scale is zero but codes are not")
CODE_MINUS_128 = Fault("illegal_code", "error", "code is -128")
CODE_NAN = Fault("illegal_code", "error", "code is NaN")
BLOCK_SCALE_WORD = Fault("illegal_scale", "error", "block scale is above 0x7E")
DIVISOR = Fault("illegal_divisor", "error", "divisor is not finite and above zero")
PADDING = Fault("padding", "error", "padding past the last row or column is not zero")
OVERFLOW = Fault("overflow", "error", "value is past the largest float32")
NON_FINITE = Fault("non_finite", "error", "value is NaN or infinite")


def find_illegal(view: RowView, begin: int = 0, end: int | None = None) -> list[Finding]:
    """Return what is illegal in rows `begin` to `end` of a view, one finding per kind.

    Every bit pattern of bf16, fp32 and int32 is legal; see `find_non_finite` for those.
    """
    stop = view.rows if end is None else end
    check = _CHECKS.get(view.layout)
    if check is None:
        return []
    chunks = row_chunks(view, begin, stop, CHUNK_BYTES)
    found = [finding for chunk in chunks for finding in check(view, *chunk)]
    if view.layout == nf.BLOCK_SCALE:
        found += _check_divisors(view) + _check_tile_padding(view)
    return merge(found)


def reject_illegal(view: RowView, begin: int = 0, end: int | None = None) -> None:
    """Raise NumericError for the first kind of illegal word in rows `begin` to `end`.

    Words whose product overflows are legal one by one: they decode to infinity, and only the
    search for faults reports them.
    """
    for finding in find_illegal(view, begin, end):
        if finding.severity == "error" and finding.kind != OVERFLOW.kind:
            raise NumericError(f"illegal {view.format} words: {finding}")


def find_non_finite(view: RowView) -> list[Finding]:
    """Return NaN and infinity among the values of a bf16 or fp32 view."""
    if view.format not in (nf.BF16, nf.FP32):
        return []
    found = []
    for begin, end in row_chunks(view, 0, view.rows, CHUNK_BYTES):
        rows = {"values": view.planes["values"][begin:end]}
        words = unpack_contiguous(rows, direct.WORD_TYPES[view.format])
        at = direct.find_non_finite(words, view.format)
        if at.size:
            row, column = divmod(int(at[0]), words.shape[1])
            found.append(NON_FINITE.at(at.size, begin + row, column=column))
    return merge(found)


def _check_row_split(view: RowView, begin: int, end: int) -> Iterator[Finding]:
    rows = {name: plane[begin:end] for name, plane in view.planes.items()}
    scales = row_split.scale_words(rows)
    if (scales >= 0x7C00).any():
        yield from find_in(NEGATIVE_SCALE, scales >= 0x8000, "group", begin)
        yield from find_in(NON_FINITE_SCALE, (scales & 0x7C00) == 0x7C00, "group", begin)
    empty = scales == 0
    empty[:, -(-view.shape[1] // nf.FORMATS[view.format].group) :] = False
    if empty.any():
        empty[empty] = _any_code(rows, empty)
        yield from find_in(ZERO_SCALE, empty, "group", begin)
    if view.format == nf.Q8:
        yield from find_in(CODE_MINUS_128, rows["base"] == 0x80, "column", begin)
    yield from _check_lane_padding(view, rows, begin)


def _any_code(rows: dict[str, U8], groups: np.ndarray) -> np.ndarray:
    n, g = groups.shape
    found = np.zeros(np.count_nonzero(groups), bool)
    for name in ("base", "high"):
        if name in rows:
            found |= rows[name].reshape(n, g, -1)[groups].any(axis=1)
    return found


def _check_lane_padding(view: RowView, rows: dict[str, U8], begin: int) -> Iterator[Finding]:
    n, groups = row_split.scale_words(rows).shape
    k, group = view.shape[1], nf.FORMATS[view.format].group
    if k == groups * group:
        return
    # From the group that holds column k on, there is padding.
    first = k // group
    tail = {
        name: np.ascontiguousarray(plane.reshape(n, groups, -1)[:, first:]).reshape(n, -1)
        for name, plane in rows.items()
    }
    lanes = row_split.unpack_padded(tail, view.format)[:, k - first * group :]
    yield from find_in(PADDING, lanes != 0, "column", begin, k)
    unused = -(-k // group)
    scales = row_split.scale_words(rows)[:, unused:]
    if scales.size:
        yield from find_in(PADDING, scales != 0, "group", begin, unused)


def _check_row_scale(view: RowView, begin: int, end: int) -> Iterator[Finding]:
    rows = {name: plane[begin:end] for name, plane in view.planes.items()}
    codes, scales = row_scale.unpack(rows)
    yield from find_in(CODE_NAN, (codes & 0x7F) == 0x7F, "column", begin)
    yield from find_in(NEGATIVE_SCALE, (scales >= 0x8000)[:, None], "column", begin)
    yield from find_in(NON_FINITE_SCALE, ((scales & 0x7F80) == 0x7F80)[:, None], "column", begin)
    empty = np.flatnonzero(scales == 0)
    bad = (codes[empty] & 0x7F) != 0
    for finding in find_in(ZERO_SCALE, bad, "column", 0):
        yield replace(finding, row=begin + int(empty[finding.row or 0]))
    yield from _check_row_overflow(codes, scales, begin)


def _check_row_overflow(codes: U8, scales: NDArray[np.uint16], begin: int) -> Iterator[Finding]:
    # NaN, infinity and signs are other faults; as words they would compare as larger.
    large = np.flatnonzero((scales > _SAFE_SCALE_WORD) & (scales < 0x7F80))
    values = fp8_row.decode(codes[large], scales[large])
    for finding in find_in(OVERFLOW, np.isinf(values), "column", 0):
        yield replace(finding, row=begin + int(large[finding.row or 0]))


def _check_block_scale(view: RowView, begin: int, end: int) -> Iterator[Finding]:
    codes, k = view.planes["codes"][begin:end], view.shape[1]
    scales = block_scale.gather_scales(view.planes["scales"], begin, end, scale_groups(view))
    if (scales > 0x7E).any():
        yield from find_in(BLOCK_SCALE_WORD, scales > 0x7E, "group", begin)
    empty = scales == 0
    if empty.any():
        empty[empty] = (codes.reshape(*empty.shape, -1)[empty] & 0x77).any(axis=1)
        yield from find_in(ZERO_BLOCK_SCALE, empty, "group", begin)
    if k % block_scale.BLOCK:
        first = k - k % block_scale.BLOCK
        lanes = block_scale.unpack_codes(codes[:, first // 2 :])[:, k - first :]
        yield from find_in(PADDING, lanes != 0, "column", begin, k)
    yield from _check_block_overflow(view, scales, begin, end)


def _check_block_overflow(view: RowView, scales: U8, begin: int, end: int) -> Iterator[Finding]:
    if not _is_small(view.divisors).any():
        return
    divisors = row_divisors(view)[begin:end]
    rows = np.flatnonzero(_is_small(divisors))
    codes = block_scale.unpack_codes(view.planes["codes"][begin:end][rows])[:, : view.shape[1]]
    values = nvfp4.decode(codes, scales[rows], divisors[rows])
    for finding in find_in(OVERFLOW, np.isinf(values), "column", 0):
        yield replace(finding, row=begin + int(rows[finding.row or 0]))


def _is_small(divisors: NDArray[np.float32]) -> NDArray[np.bool_]:
    return (divisors > 0) & (divisors < _SAFE_DIVISOR)


def _check_divisors(view: RowView) -> list[Finding]:
    divisors = view.divisors
    bad = np.flatnonzero(~(np.isfinite(divisors) & (divisors > 0)))
    stack = view.rows // len(divisors)
    return [DIVISOR.at(bad.size, int(bad[0]) * stack)] if bad.size else []


def _check_tile_padding(view: RowView) -> list[Finding]:
    tiles, found = view.planes["scales"], []
    groups, width = scale_groups(view), tiles.shape[1] // 128
    if groups % block_scale.TILE_BLOCKS:
        last = block_scale.unswizzle_padded(np.ascontiguousarray(tiles[:, -512:]))
        extra = last[:, groups - width :][: view.rows]
        found += find_in(PADDING, extra != 0, "group", 0, groups)
    if view.rows % block_scale.TILE_ROWS:
        extra = block_scale.unswizzle_padded(tiles[-1:])[view.rows % block_scale.TILE_ROWS :]
        found += find_in(PADDING, extra != 0, "group", view.rows)
    return found


_CHECKS: dict[str, Callable[[RowView, int, int], Iterator[Finding]]] = {
    nf.ROW_SPLIT: _check_row_split,
    nf.ROW_SCALE: _check_row_scale,
    nf.BLOCK_SCALE: _check_block_scale,
}
