"""Files that were cut short and filled up with zeros to their right size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from ninfer_formats.directory import StoredObject
from ninfer_formats.reader import Artifact
from ninfer_tools.inspection.fault import PayloadFault
from ninfer_tools.inspection.files import is_readable

# Shorter runs end ordinary tensors now and then.
TAIL_BYTES = 512
_STEP = 1 << 20


def check_zero_tails(artifact: Artifact) -> Iterator[PayloadFault]:
    """Yield the readable files that end in zeros which begin inside an object.

    Each file is looked at by itself: a part may be cut like the entry. Bytes behind the last
    object carry no meaning and do not count.
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
    run = artifact.payload.extents(cut, 1)[0]
    path = artifact.payload.file_path(index)
    return PayloadFault(
        "error",
        f"object {inside.id}",
        "zero_tail",
        f"{path.name} ends in {zeros:,} zero bytes from byte {run.offset:,} on, inside this "
        "object: it was cut there and filled up; download or copy it again",
        inside.offset,
        count=zeros,
    )
