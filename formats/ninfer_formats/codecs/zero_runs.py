"""Where bytes are zero for long: whole pages of a file that never arrived look like this."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ninfer_formats.layouts.planes import U8

# One page of every common file system.
HOLE_BYTES = 4096
_STRIDE = 512
_STEP = 1 << 20


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


def edge_runs(flat: U8, least: int) -> Iterator[tuple[int, int]]:
    """Yield the zero runs at either end of `flat` that are too short for `zero_runs`.

    A page that lies across two planes or objects leaves a piece of itself in each. Yields runs of
    `least` to HOLE_BYTES - 1 bytes.
    """
    leading = int(np.argmax(np.append(flat[:HOLE_BYTES], 1) != 0))
    if least <= leading < HOLE_BYTES:
        yield 0, leading
    trailing = int(np.argmax(np.append(flat[-HOLE_BYTES:][::-1], 1) != 0))
    if least <= trailing < HOLE_BYTES and trailing < flat.size:
        yield flat.size - trailing, flat.size
