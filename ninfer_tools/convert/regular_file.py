"""Files that an option names, read only when they are regular and not too large (rule V-187)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from ninfer_formats.errors import UsageError


@contextmanager
def open_regular(path: Path) -> Iterator[BufferedReader]:
    """Open a file for reading; UsageError unless it is a regular one that can be read.

    Pipes, terminals and devices have no end, or wait for a writer that never comes.
    """
    try:
        # Without waiting, so that a pipe nobody writes to can be refused at all.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read: {reason}", path=path) from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"
        raise UsageError("is no regular file", path=path, got=kind)
    with os.fdopen(descriptor, "rb") as file:
        yield file


def read_regular(path: Path, limit: int) -> bytes:
    """Return the bytes of a regular file; UsageError for one above `limit` bytes."""
    with open_regular(path) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            # The size is not believed: some file systems call endless files empty.
            raw = b"" if size > limit else file.read(limit + 1)
        except OSError as error:
            raise UsageError(f"cannot read: {error.strerror}", path=path) from None
    if max(size, len(raw)) > limit:
        got = size if size > limit else f"more than {limit}"
        raise UsageError("file is too large", path=path, got=f"{got} bytes", want=f"<= {limit}")
    return raw
