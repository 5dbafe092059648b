"""Runs of zero bytes that a padded or partly downloaded file leaves behind (rule NF-61).

No encoder writes zero codes under a scale that is not zero for a whole group, nor codes without
any high bit over hundreds of groups, so a long run of them says that bytes never arrived.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.findings import Fault, Finding
from ninfer_formats.codecs.zero_runs import HOLE_BYTES, edge_runs, zero_runs
from ninfer_formats.layouts import block_scale, row_scale, row_split
from ninfer_formats.layouts.planes import U8
from ninfer_formats.layouts.rows import RowView, scale_groups

_STEP = 1 << 20
# The larger piece of a page that the edge of a plane cuts in two.
_EDGE_BYTES = HOLE_BYTES // 2
# A trained q5 group is without negative codes now and then, and made-up matrices (identity,
# constants) have no high bits at all: only many codes of different values are a proof.
_LEAST_CODES = 1024
_GROUPS = 1 << 14

HOLE = Fault("hole", "error", "a page of zero bytes of codes under non-zero scales")
HIGH_HOLE = Fault("hole", "error", "a page of zero bytes of high bits over codes that need some")
SCALE_HOLE = Fault("hole", "error", f"{HOLE_BYTES} or more zero bytes of scales over codes")
ZERO_RUN = Fault("zero_run", "notice", f"{HOLE_BYTES} or more zero bytes in a row")
ALL_ZERO = Finding("all_zero", "notice", "every value is zero")


def find_holes(view: RowView) -> list[Finding]:
    """Return the holes of a view, or a notice that all of it is zero."""
    if is_all_zero(view):
        return [ALL_ZERO]
    if view.layout == nf.CONTIGUOUS:
        return _report(ZERO_RUN, _zero_rows(view))
    found = _report(HOLE, _hole_rows(view))
    if "high" in view.planes:
        found += _report(HIGH_HOLE, _high_hole_rows(view))
    if view.layout == nf.BLOCK_SCALE and not found:
        found = _report(SCALE_HOLE, _scale_hole_rows(view))
    return found


def is_all_zero(view: RowView) -> bool:
    """Return whether every code and scale byte is zero; divisors do not count."""
    return not any(
        _any_nonzero(plane.reshape(-1)) for name, plane in view.planes.items() if name != "divisor"
    )


def _any_nonzero(flat: U8) -> bool:
    return any(flat[at : at + _STEP].any() for at in range(0, flat.size, _STEP))


def _report(fault: Fault, rows: Iterator[int]) -> list[Finding]:
    found = list(rows)
    return [fault.at(len(found), found[0])] if found else []


def _zero_rows(view: RowView) -> Iterator[int]:
    plane = view.planes["values"]
    return (begin // plane.shape[1] for begin, _ in zero_runs(plane.reshape(-1)))


def _hole_rows(view: RowView) -> Iterator[int]:
    plane = view.planes["codes" if "codes" in view.planes else "base"]
    scaled = {
        nf.ROW_SPLIT: _covers_scaled_group,
        nf.BLOCK_SCALE: _covers_scaled_block,
        nf.ROW_SCALE: _covers_scaled_row,
    }[view.layout]
    for begin, end in _page_runs(plane):
        if scaled(view, begin, end):
            yield begin // plane.shape[1]


def _page_runs(plane: U8) -> Iterator[tuple[int, int]]:
    yield from zero_runs(plane.reshape(-1))
    yield from edge_runs(plane.reshape(-1), _EDGE_BYTES)


def _high_hole_rows(view: RowView) -> Iterator[int]:
    plane = view.planes["high"]
    for begin, end in _page_runs(plane):
        if _needs_high_bits(view, begin, end):
            yield begin // plane.shape[1]


def _needs_high_bits(view: RowView, begin: int, end: int) -> bool:
    """Return whether the groups that bytes `begin` to `end` of the high plane wholly cover show
    many codes of more than one value. Their signs cannot all be positive by chance (q5), and the
    largest code of every group is beyond what the base plane holds (q6)."""
    scales = row_split.scale_words(view.planes).reshape(-1)
    base = view.planes["base"].reshape(scales.size, -1)
    group_bytes = view.planes["high"].size // scales.size
    last, counts = end // group_bytes, np.zeros(16, np.int64)
    for first in range(-(-begin // group_bytes), last, _GROUPS):
        groups = slice(first, min(last, first + _GROUPS))
        pairs = base[groups][scales[groups] > 1].reshape(-1)
        table = np.bincount(pairs, minlength=256).reshape(16, 16)
        counts += table.sum(axis=0) + table.sum(axis=1)
        if counts[1:].sum() >= _LEAST_CODES and np.count_nonzero(counts[1:]) > 1:
            return True
    return False


# Scale word 1 is what encoders give a group too small for any other scale; its codes may all be
# zero, so only larger scales prove that codes are missing.


def _covers_scaled_group(view: RowView, begin: int, end: int) -> bool:
    scales = row_split.scale_words(view.planes).reshape(-1)
    group_bytes = view.planes["base"].size // scales.size
    return bool((scales[-(-begin // group_bytes) : end // group_bytes] > 1).any())


def _covers_scaled_block(view: RowView, begin: int, end: int) -> bool:
    row_bytes, groups = view.planes["codes"].shape[1], scale_groups(view)
    for row in range(begin // row_bytes, -(-end // row_bytes), block_scale.TILE_ROWS):
        stop = min(row + block_scale.TILE_ROWS, -(-end // row_bytes))
        scales = block_scale.gather_scales(view.planes["scales"], row, stop, groups)
        first = max(0, -(-begin // 8) - row * groups)
        if (scales.reshape(-1)[first : max(first, end // 8 - row * groups)] > 1).any():
            return True
    return False


def _covers_scaled_row(view: RowView, begin: int, end: int) -> bool:
    k = view.shape[1]
    rows = np.arange(begin // k, -(-end // k))
    covered = np.minimum(end, (rows + 1) * k) - np.maximum(begin, rows * k)
    _, scales = row_scale.unpack(view.planes)
    # The ends of a row of zeros may touch a zero code of its neighbour: ask for half a run. At the
    # edges of the plane columns of zeros make runs as short: ask for a row.
    least = min(k, HOLE_BYTES // 2) if end - begin >= HOLE_BYTES else k
    return bool((scales[rows[covered >= least]] > 0).any())


def _scale_hole_rows(view: RowView) -> Iterator[int]:
    tiles, row = view.planes["scales"], -1
    for begin, end in zero_runs(tiles.reshape(-1)):
        for tile_row in range(begin // tiles.shape[1], -(-end // tiles.shape[1])):
            if tile_row != row and _lost_blocks(view, tile_row) >= HOLE_BYTES // 2:
                yield tile_row * block_scale.TILE_ROWS
            row = tile_row


def _lost_blocks(view: RowView, tile_row: int) -> int:
    begin = tile_row * block_scale.TILE_ROWS
    end = min(view.rows, begin + block_scale.TILE_ROWS)
    scales = block_scale.gather_scales(view.planes["scales"], begin, end, scale_groups(view))
    codes = view.planes["codes"][begin:end].reshape(*scales.shape, -1)
    return int(np.count_nonzero(codes[scales == 0].any(axis=1)))
