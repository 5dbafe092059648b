"""The logical payload of an artifact, and its memory maps opened when first read."""

from __future__ import annotations

import bisect
import mmap
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import numpy as np

from ninfer_formats.container import PART_HEADER_BYTES, PART_MAGIC, part_index
from ninfer_formats.directory import FileEntry
from ninfer_formats.errors import ArtifactError, UsageError


@dataclass(frozen=True)
class Extent:
    """A run of logical payload bytes inside one file: `file` counts from 0 (the entry),
    `offset` is from the start of that file."""

    file: int
    offset: int
    bytes: int


def open_regular(path: Path) -> tuple[int, int]:
    """Open a regular file for reading; return (descriptor, size). Folders, devices and pipes are
    refused: opening a pipe would hang."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"cannot open: {reason}", path=path) from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise UsageError("not a regular file", path=path)
    return descriptor, status.st_size


def map_file(descriptor: int, size: int) -> np.ndarray:
    """Map a whole file read-only as uint8 [size] and close the descriptor."""
    try:
        if size == 0:
            return np.empty(0, np.uint8)
        return np.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ), np.uint8)
    finally:
        os.close(descriptor)


class Payload(Protocol):
    """What an opened artifact needs of its payload, wherever the bytes come from."""

    @property
    def bytes(self) -> int:
        """Byte count of the logical payload."""
        ...

    def extents(self, offset: int, count: int) -> list[Extent]:
        """Return the runs of `count` logical bytes from `offset`, in order."""
        ...

    def read(self, offset: int, count: int) -> np.ndarray:
        """Return `count` logical bytes from `offset` as read-only uint8."""
        ...

    def header(self, index: int) -> np.ndarray:
        """Return the bytes of file `index` in front of its payload, uint8."""
        ...

    def file(self, index: int) -> np.ndarray:
        """Return a whole file as uint8."""
        ...

    def file_path(self, index: int) -> Path:
        """Return the path of file `index` (0 is the entry)."""
        ...


class MappedPayload:
    """Zero-copy access to the payload of files.

    A file that shrinks after it was mapped kills the process on access (SIGBUS): sizes are
    checked when a file is opened, and nothing may truncate an artifact in use.
    """

    def __init__(
        self,
        entry: Path,
        mapped: np.ndarray,
        start: int,
        files: Sequence[FileEntry],
        artifact_id: bytes | None,
    ) -> None:
        self._entry, self._files, self._artifact_id = entry, tuple(files), artifact_id
        self._starts = [start] + [PART_HEADER_BYTES] * (len(files) - 1)
        self._ends = list(accumulate(item.payload_bytes for item in files))
        self._mapped: dict[int, np.ndarray] = {0: mapped}

    @property
    def bytes(self) -> int:
        """Byte count of the logical payload."""
        return self._ends[-1]

    def extents(self, offset: int, count: int) -> list[Extent]:
        """Return the runs of `count` logical bytes from `offset`, in order."""
        runs = []
        index = bisect.bisect_right(self._ends, offset)
        while count > 0:
            begin = self._ends[index] - self._files[index].payload_bytes
            size = min(count, self._ends[index] - offset)
            runs.append(Extent(index, self._starts[index] + offset - begin, size))
            offset, count, index = offset + size, count - size, index + 1
        return runs

    def read(self, offset: int, count: int) -> np.ndarray:
        """Return uint8 [count]: a view inside one file, a copy only where files meet."""
        pieces = [
            self.file(run.file)[run.offset : run.offset + run.bytes]
            for run in self.extents(offset, count)
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def header(self, index: int) -> np.ndarray:
        """Return the bytes of file `index` in front of its payload, uint8."""
        return self.file(index)[: self._starts[index]]

    def file(self, index: int) -> np.ndarray:
        """Return a whole file as uint8; parts are opened and checked on first access."""
        if index not in self._mapped:
            self._mapped[index] = self._map_part(index)
        return self._mapped[index]

    def file_path(self, index: int) -> Path:
        """Return the path of file `index` (0 is the entry)."""
        name = self._files[index].path
        return self._entry if name is None else self._entry.parent / name

    def _map_part(self, index: int) -> np.ndarray:
        path = self.file_path(index)
        self._check_confined(path)
        if not path.exists():
            raise ArtifactError(
                "part is missing",
                path=path,
                want=f"file {index + 1} of {len(self._files)} beside {self._entry.name}",
                remedy="put every part into the folder of the entry, names unchanged",
            )
        descriptor, size = open_regular(path)
        want = PART_HEADER_BYTES + self._files[index].payload_bytes
        head = os.pread(descriptor, 32, 0)
        try:
            self._check_part(path, index, head, size, want)
        except ArtifactError:
            os.close(descriptor)
            raise
        return map_file(descriptor, size)

    def _check_part(self, path: Path, index: int, head: bytes, size: int, want: int) -> None:
        if size != want:
            raise ArtifactError(
                f"part is {size} bytes, directory says {want}",
                path=path,
                remedy="download or copy the part again",
            )
        same = head[:8] == PART_MAGIC + b"\3" and part_index(head) == index
        if not same or head[16:32] != self._artifact_id:
            raise ArtifactError(
                "continuation header does not belong to this entry",
                path=path,
                want=f"part {index} of artifact {(self._artifact_id or b'').hex()}",
                remedy="copy the parts that were written together with the entry",
            )

    def _check_confined(self, path: Path) -> None:
        # A download cache keeps snapshots as links into one blob folder: a part may resolve to the
        # folder of the entry itself or to that of the file the entry resolves to, nowhere else.
        allowed = {Path(os.path.realpath(self._entry.parent)), self._entry.resolve().parent}
        if Path(os.path.realpath(path)).parent not in allowed:
            raise ArtifactError(
                "part leaves the folder of its entry through a link",
                path=path,
                got=os.path.realpath(path),
                remedy="copy the part itself beside the entry",
            )
