"""Files that were cut short and filled up with zeros to their right size.

A matrix may hold zeros in its last rows, which looks the same from afar: embedding rows past the
last token id do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.zero_runs import HOLE_BYTES
from ninfer_formats.directory import StoredObject, Tensor
from ninfer_formats.object_records import find_object_problem
from ninfer_formats.payload import Extent
from ninfer_formats.reader import Artifact
from ninfer_tools.inspection.fault import PayloadFault
from ninfer_tools.inspection.files import is_readable
from ninfer_tools.inspection.zero_pages import describe_rows, find_whole_rows

# Shorter runs end ordinary tensors now and then.
TAIL_BYTES = 512
_STEP = 1 << 20


def check_zero_tails(artifact: Artifact) -> Iterator[PayloadFault]:
    """Yield the readable files that end in zeros which begin inside an object.

    Each file is looked at by itself: a part may be cut like the entry. Bytes behind the last
    object carry no meaning and do not count. Zeros that are whole rows of a direct matrix are a
    notice only.
    """
    objects = list(artifact.objects.values())
    end_of_objects = objects[-1].end if objects else 0
    ends = list(accumulate(item.payload_bytes for item in artifact.files))
    for index, end in enumerate(ends):
        begin = end - artifact.files[index].payload_bytes
        stop = min(end, end_of_objects)
        if begin < stop and is_readable(artifact, index):
            fault = _find_tail(artifact, objects, index, begin, stop)
            if fault is not None:
                yield fault


def count_zeros(flat: np.ndarray) -> int:
    """Return how many bytes at the end of uint8 [n] are zero."""
    end = flat.size
    while end > 0:
        begin = max(0, end - _STEP)
        found = np.flatnonzero(flat[begin:end])
        if found.size:
            return flat.size - (begin + int(found[-1]) + 1)
        end = begin
    return flat.size


def _find_tail(
    artifact: Artifact, objects: list[StoredObject], index: int, begin: int, stop: int
) -> PayloadFault | None:
    zeros = count_zeros(artifact.payload.read(begin, stop - begin))
    cut = stop - zeros
    inside = next((item for item in objects if item.offset < cut < item.end), None)
    if zeros < TAIL_BYTES or inside is None:
        return None
    where, offset = f"object {inside.id}", inside.offset
    message = (
        f"{artifact.payload.file_path(index).name} ends in {zeros:,} zero bytes from byte "
        f"{artifact.payload.extents(cut, 1)[0].offset:,} on"
    )
    is_last = not any(inside.end <= item.offset < stop for item in objects)
    run = _find_run(artifact, inside, cut, min(stop, inside.end))
    rows = _find_rows(inside, run) if is_last else None
    if rows is None:
        message += ", inside this object: it was cut there and filled up; download or copy it again"
        return PayloadFault("error", where, "zero_tail", message, offset, count=zeros)
    if run[1] - run[0] >= HOLE_BYTES:
        # The tensor's own check has noted so long a run.
        return None
    message += f": {describe_rows(rows)} zero as a whole"
    return PayloadFault("notice", where, "zero_tail", message, offset, rows[0], count=zeros)


def _find_run(artifact: Artifact, item: StoredObject, begin: int, end: int) -> tuple[int, int]:
    """Return the zero run inside an object that logical bytes `begin` to `end` belong to, across
    files: rows may lie on both sides of a part's end. An unreadable file ends the run."""
    before = artifact.payload.extents(item.offset, begin - item.offset)
    after = artifact.payload.extents(end, item.end - end)
    return begin - _count_run(artifact, before[::-1], 1), end + _count_run(artifact, after, -1)


def _count_run(artifact: Artifact, extents: list[Extent], step: int) -> int:
    count = 0
    for extent in extents:
        if not is_readable(artifact, extent.file):
            break
        flat = artifact.payload.file(extent.file)[extent.offset : extent.offset + extent.bytes]
        zeros = count_zeros(flat[::step])
        count += zeros
        if zeros < extent.bytes:
            break
    return count


def _find_rows(item: StoredObject, run: tuple[int, int]) -> tuple[int, int] | None:
    if not isinstance(item, Tensor) or item.layout != nf.CONTIGUOUS or find_object_problem(item):
        return None
    return find_whole_rows(item, run[0] - item.offset, run[1] - item.offset)
