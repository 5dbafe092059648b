"""The container version from the first bytes of a file, and nothing else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ninfer_formats.container import check_magic
from ninfer_formats.errors import ArtifactError, UsageError
from ninfer_formats.foreign import SNIFF_BYTES


def read_version(path: Path) -> int:
    """Return the container version of a file from at most 64 of its bytes.

    Raises UsageError for what is no readable regular file, and ArtifactError with exit code 2
    for everything that is not an entry file of a version this release reads.
    """
    head, size = _read_head(path)
    try:
        return check_magic(head, size, path)
    except ArtifactError as error:
        # Asked for the version alone, "too new" is as foreign as any other file.
        error.exit_code = 2
        raise


def _read_head(path: Path) -> tuple[bytes, int]:
    try:
        # Opening a pipe without O_NONBLOCK would hang.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"cannot open: {reason}", path=path) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError("not a regular file", path=path)
        return os.read(descriptor, SNIFF_BYTES), status.st_size
    finally:
        os.close(descriptor)
