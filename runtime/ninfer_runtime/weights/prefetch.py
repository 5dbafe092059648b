"""Asking the system to read ahead of a copy out of a mapped file."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np


def prefetch(plane: np.ndarray) -> bool:
    """Start reading the bytes of a flat view of a mapped file; return whether it is one.

    Page faults alone read small pieces, one after the other, which leaves a disk idle.
    """
    owner, root = _owner(plane)
    advise = getattr(mmap, "MADV_WILLNEED", None)
    if owner is None or advise is None or plane.size == 0:
        return False
    begin = plane.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    start = begin - begin % mmap.PAGESIZE
    with contextlib.suppress(OSError):  # a hint: without it the copy is slower
        owner.madvise(advise, start, begin - start + plane.nbytes)
    return True


def _owner(plane: np.ndarray) -> tuple[mmap.mmap | None, np.ndarray]:
    """Return the map that holds the bytes, None for ordinary memory, and the array over all of
    it."""
    root = plane
    while isinstance(root.base, np.ndarray):
        root = root.base
    owner = root.base.obj if isinstance(root.base, memoryview) else root.base
    return (owner if isinstance(owner, mmap.mmap) else None), root
