"""Give a finished file its final name without ever overwriting another one."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

# FAT and exFAT answer EPERM; network and FUSE file systems answer one of the others.
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_NO_EXCLUSIVE_RENAME = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
# Some network and FUSE file systems.
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}

# <linux/fcntl.h> and <linux/fs.h>
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


def link_or_move(source: Path, target: Path) -> None:
    """Make `target` name the file `source`: a hard link, else an exclusive rename.

    Raises FileExistsError, with nothing changed, when `target` exists in any form.
    """
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        move_exclusively(source, target)


def move_exclusively(source: Path, target: Path) -> None:
    """Rename `source` to `target`; FileExistsError, with nothing changed, when `target` exists.

    Where the kernel cannot do both at once the check and the rename are two steps, and a program
    that does not know our locks could slip in between.
    """
    try:
        _rename_no_replace(source, target)
    except OSError as error:
        if error.errno not in _NO_EXCLUSIVE_RENAME:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        source.rename(target)


def _rename_no_replace(source: Path, target: Path) -> None:
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.renameat2(
        _AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE
    )
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(source), None, str(target))


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable (fsync of the folder itself), where that is possible."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)
