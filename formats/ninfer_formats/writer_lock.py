"""The lock that tells a living writer's work folder from what a killed one left behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ninfer_formats.work_folder import WorkFolder, hidden_name, is_regular_file

try:
    import fcntl
except ImportError:  # Without locks no folder counts as a leftover, so none is ever cleaned.
    fcntl = None

_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


def create_work_folder(parent: Path, entry: str) -> tuple[WorkFolder, int]:
    """Create and lock a work folder; return it and the descriptor that holds the lock.

    The lock ends when the descriptor is closed or the process dies, in whatever way.
    """
    while True:
        folder = WorkFolder(parent / hidden_name(entry), entry)
        folder.path.mkdir(0o700)
        try:
            descriptor = _create_locked(folder)
            if descriptor is not None:
                (folder.path / "new").mkdir()
                (folder.path / "old").mkdir()
                return folder, descriptor
        except BaseException:
            folder.remove()
            raise


def _create_locked(folder: WorkFolder) -> int | None:
    descriptor = os.open(folder.lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _lock(descriptor)
        # Between creation and lock another process can take the folder for a leftover.
        if is_regular_file(folder.lock):
            os.write(descriptor, f"{os.getpid()}\n".encode())
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def take_lock(folder: WorkFolder) -> int | None:
    """Return a descriptor holding the lock of a leftover; None where nobody can tell.

    Raises BlockingIOError while the writer lives. Nobody can tell on a system without locks, or
    when the folder vanishes meanwhile.
    """
    try:
        descriptor = os.open(folder.lock, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    try:
        if _lock(descriptor):
            return descriptor
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _lock(descriptor: int) -> bool:
    """Take the lock; return False where locks do not exist, BlockingIOError when it is held."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


def writer_of(folder: WorkFolder) -> str:
    """Return the process id in the lock file, or "unknown"."""
    try:
        text = folder.lock.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return "unknown"
    return text if text.isdigit() else "unknown"
