"""Write a whole folder under a hidden name and give it its final name when it is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ninfer_formats.errors import UsageError
from ninfer_formats.leftovers import clean_leftovers, settle
from ninfer_formats.placement import move_exclusively, sync_folder
from ninfer_formats.writer_lock import create_work_folder, writer_of

# Room for the folder itself and the file system's own bookkeeping.
_SPACE_SLACK = 1 << 20
_MARKER = "config.json"


def check_output(target: Path, force: bool) -> None:
    """Raise UsageError when `target` cannot become a checkpoint folder.

    `force` allows to replace a folder, but only one that is empty or holds a config.json: nobody
    should lose a home folder to a typing error.
    """
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(
            "the output's parent is not a writable folder",
            path=target,
            remedy="create it or choose another folder",
        )
    if not os.path.lexists(target):
        return
    if not force:
        raise UsageError(
            "the output folder exists", path=target, remedy="choose another folder or pass --force"
        )
    if target.is_symlink() or not target.is_dir():
        raise UsageError("the output path is not a folder", path=target)
    if any(target.iterdir()) and not (target / _MARKER).is_file():
        raise UsageError(
            "the folder to replace is not a checkpoint",
            path=target,
            want=f"a {_MARKER} in it",
            remedy="choose another folder",
        )


@contextmanager
def publish_folder(target: Path, size: int, force: bool) -> Iterator[Path]:
    """Yield an empty hidden folder that becomes `target` when the block ends normally.

    After any exception nothing of it remains, and what was at `target` before is still there.
    What killed runs left for this target is cleaned first. `size` bytes must be free. Raises
    UsageError as `check_output`, for a full disk, and while another process writes `target`.
    """
    target = Path(os.path.realpath(target.parent)) / target.name
    _refuse_other_writers(target)
    check_output(target, force)
    _require_space(target, size)
    work, lock = create_work_folder(target.parent, target.name)
    try:
        new = work.new(target.name)
        new.mkdir()
        yield new
        sync_folder(new)
        if force and target.is_dir():
            target.rename(work.old(target.name))
        _place(new, target)
    finally:
        settle(work)
        os.close(lock)


def _refuse_other_writers(target: Path) -> None:
    if living := clean_leftovers(target):
        raise UsageError(
            "another process is writing this folder",
            path=target,
            got=f"process {writer_of(living[0])}",
            remedy="wait for it or choose another folder",
        )


def _require_space(target: Path, size: int) -> None:
    free = free_bytes(target.parent)
    if free < size + _SPACE_SLACK:
        raise UsageError(
            "not enough free disk space",
            path=target,
            got=f"{free / 2**30:.2f} GiB free",
            want=f"{(size + _SPACE_SLACK) / 2**30:.2f} GiB",
            remedy="free disk space or choose another folder",
        )


def free_bytes(folder: Path) -> int:
    """Return the bytes an ordinary user can still write to the folder's file system."""
    return shutil.disk_usage(folder).free


def _place(new: Path, target: Path) -> None:
    try:
        move_exclusively(new, target)
    except FileExistsError as error:
        raise UsageError(
            "the output folder was created by another process meanwhile",
            path=target,
            remedy="choose another folder or pass --force",
        ) from error
    sync_folder(target.parent)
