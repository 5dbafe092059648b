"""Runs of zero bytes that a padded or partly downloaded file leaves behind (rule NF-61).

No encoder writes zero codes under a scale that is not zero for a whole group, so a long run of
them says that bytes never arrived.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.findings import Fault, Finding
from ninfer_formats.layouts import block_scale, row_scale, row_split
from ninfer_formats.layouts.planes import U8
from ninfer_formats.layouts.rows import RowView, scale_groups

# One page of every common file system.
HOLE_BYTES = 4096
_STRIDE = 512
_STEP = 1 << 20

HOLE = Fault("hole", "error", f"{HOLE_BYTES} or more zero bytes of codes under non-zero scales")
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
    if view.layout == nf.BLOCK_SCALE and not found:
        found = _report(SCALE_HOLE, _scale_hole_rows(view))
    return found


def is_all_zero(view: RowView) -> bool:
    """Return whether every code and scale byte is zero; divisors do not count."""
    return not any(
        _any_nonzero(plane.reshape(-1)) for name, plane in view.planes.items() if name != "divisor"
    )


def zero_runs(flat: U8) -> Iterator[tuple[int, int]]:
    """Yield begin and end of every run of at least HOLE_BYTES zero bytes.

    Looks at 8 bytes in 512 first: a run that long holds at least seven such samples in a row.
    """
    samples = flat[: flat.size // 8 * 8].view(np.uint64)[:: _STRIDE // 8] == 0
    edges = np.flatnonzero(np.diff(samples, prepend=False, append=False))
    for first, last in edges.reshape(-1, 2):
        if last - first >= HOLE_BYTES // _STRIDE - 1:
            begin = max(0, int(first - 1) * _STRIDE)
            yield from _exact_runs(flat, begin, min(flat.size, int(last + 1) * _STRIDE))


def _any_nonzero(flat: U8) -> bool:
    return any(flat[at : at + _STEP].any() for at in range(0, flat.size, _STEP))


def _exact_runs(flat: U8, begin: int, end: int) -> Iterator[tuple[int, int]]:
    run = begin
    for at in range(begin, end, _STEP):
        marks = at + np.flatnonzero(flat[at : min(end, at + _STEP)])
        starts = np.concatenate([[run], marks + 1])
        for index in np.flatnonzero(marks - starts[:-1] >= HOLE_BYTES):
            yield int(starts[index]), int(marks[index])
        run = int(starts[-1])
    if end - run >= HOLE_BYTES:
        yield run, end


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
    for begin, end in zero_runs(plane.reshape(-1)):
        if scaled(view, begin, end):
            yield begin // plane.shape[1]


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
    # The ends of a row of zeros may touch a zero code of its neighbour: ask for half a run.
    return bool((scales[rows[covered >= min(k, HOLE_BYTES // 2)]] > 0).any())


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
