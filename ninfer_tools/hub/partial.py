"""The growing file of one download, beside its final name and named after what it will hold."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from ninfer_formats.errors import UsageError
from ninfer_formats.placement import link_or_move, sync_folder
from ninfer_tools.hub.digests import ContentHash
from ninfer_tools.hub.listing import HubFile

try:
    import fcntl
except ImportError:  # Without locks two downloads of one file are not kept apart.
    fcntl = None

_BLOCK_BYTES = 4 << 20
_IDENTITY_DIGITS = 16
_SUFFIX = re.compile(rf"\.[0-9a-f]{{{_IDENTITY_DIGITS}}}\.partial")


def partial_path(final: Path, identity: str) -> Path:
    """Return `.NAME.<16 hex>.partial`: the digits are the start of the content's digest.

    So what is left of another revision can never be taken for the beginning of this one.
    """
    return final.with_name(f".{final.name}.{identity[:_IDENTITY_DIGITS]}.partial")


def kept_bytes(final: Path, file: HubFile) -> int:
    """Return how many bytes of the file are there already; 0 for an unusable left-over."""
    try:
        found = partial_path(final, file.identity).lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) and found.st_size <= file.bytes else 0


def remove_stale(final: Path, identity: str) -> list[Path]:
    """Delete the partial files of other contents of the same name that nobody is writing."""
    own, removed = partial_path(final, identity), []
    prefix = f".{final.name}"
    for path in sorted(final.parent.iterdir()):
        if path == own or not path.name.startswith(prefix) or path.is_symlink():
            continue
        if _SUFFIX.fullmatch(path.name, len(prefix)) and path.is_file() and _is_idle(path):
            path.unlink()
            removed.append(path)
    return removed


def _is_idle(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        return _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Take the lock of an open file; False when another process has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # A file system without locks.
    return True


class Partial:
    """An open partial file: `bytes` of `file` are there, and `hash` covers exactly these."""

    def __init__(self, final: Path, file: HubFile) -> None:
        """Open or create it. Raises UsageError while another process downloads the same file."""
        self.final, self.file = final, file
        self.path = partial_path(final, file.identity)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        self._descriptor = os.open(self.path, flags, 0o666)
        self.bytes, self.hash = 0, ContentHash(file)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode) or not self._is_ours():
            self.close()
            raise UsageError(
                "another process is downloading this file",
                path=final,
                remedy="wait for it, or choose another folder with --to",
            )

    def _is_ours(self) -> bool:
        # Between opening and locking, the other process may have given the file its final name.
        if not _lock(self._descriptor):
            return False
        with contextlib.suppress(OSError):
            return os.fstat(self._descriptor).st_ino == self.path.lstat().st_ino
        return False

    def take_up(self, advance: Callable[[int], None]) -> int:
        """Hash what is there and return its size; more bytes than the file has start over."""
        if os.fstat(self._descriptor).st_size > self.file.bytes:
            self.restart()
            return 0
        while block := os.pread(self._descriptor, _BLOCK_BYTES, self.bytes):
            self.hash.update(block)
            self.bytes += len(block)
            advance(len(block))
        return self.bytes

    def append(self, data: bytes) -> None:
        """Add bytes at the end."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, self.bytes)
            # Hashed as far as written: after a full disk the two still agree.
            self.hash.update(view[:written])
            self.bytes += written
            view = view[written:]

    def restart(self) -> None:
        """Throw away what is there."""
        os.ftruncate(self._descriptor, 0)
        self.bytes, self.hash = 0, ContentHash(self.file)

    def publish(self, force: bool) -> None:
        """Make the bytes durable and give them the final name.

        Without `force` an existing file is never replaced: FileExistsError.
        """
        os.fsync(self._descriptor)
        if force:
            self.path.replace(self.final)
        else:
            link_or_move(self.path, self.final)
            self.path.unlink(missing_ok=True)
        sync_folder(self.final.parent)

    def close(self) -> None:
        """Close the file, which stays where it is; the lock ends."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
