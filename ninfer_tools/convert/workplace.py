"""The hidden folder in which a conversion grows, and its way to the final name (V-50 to V-56)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ninfer_formats.errors import NumericError, UsageError
from ninfer_formats.leftovers import clean_leftovers, settle, withdraw
from ninfer_formats.output_target import OutputTarget, refuse_full_disk, refuse_occupied
from ninfer_formats.publication import Publication
from ninfer_formats.work_folder import WorkFolder
from ninfer_formats.writer import ArtifactWriter
from ninfer_formats.writer_lock import take_lock, writer_of
from ninfer_tools.convert.journal import NAME, Journal, read_journal


class ResumablePublication(Publication):
    """A publication whose files may be there already, from a run that was interrupted."""

    def file(self, name: str) -> int:
        """Return the descriptor of output file `name`; see `Publication.file`."""
        path = self._folder.new(name)
        if name in self._files or name not in self._target.sizes or not path.exists():
            return super().file(name)
        flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(path, flags)
        os.ftruncate(descriptor, self._target.sizes[name])
        self._files[name] = descriptor
        return descriptor


class ResumableWriter(ArtifactWriter):
    """An artifact writer that can be told what an earlier run has written."""

    def skip(self, object_id: str) -> None:
        """Count an object as written in full."""
        self._written[object_id] = self.plan.objects[object_id].bytes


@dataclass(frozen=True)
class Workplace:
    """An open work folder: files, and the journal of finished objects."""

    publication: Publication
    journal: Journal

    def sync(self, names: list[str]) -> None:
        """Make every byte written so far durable."""
        for name in names:
            os.fdatasync(self.publication.file(name))


@contextmanager
def open_workplace(target: OutputTarget, digest: str, resume: bool) -> Iterator[Workplace]:
    """Open `.<entry>.ninfer-convert/` for the plan `digest`, and publish when the block ends well.

    With `resume` the work of an interrupted run of the same plan is kept, otherwise the folder
    starts empty. A block that ends badly leaves the folder for a later `resume`, except after a
    NumericError, which the same inputs would meet again. Raises UsageError when another process
    works there, for another plan's journal, and as `publish`.
    """
    folder = WorkFolder(target.parent / f".{target.entry}.ninfer-convert", target.entry)
    _refuse_other_writers(target)
    lock = _claim(folder, target)
    try:
        refuse_occupied(target)
        done = read_journal(folder.path, digest) if resume else {}
        if not done or not _has_every_file(target, folder):
            done = {}
            _empty(folder)
        _refuse_full_disk(target, folder)
        journal = Journal(folder.path / NAME, digest, done)
        publication = ResumablePublication(target, folder, lambda step: None)
        try:
            yield Workplace(publication, journal)
            publication.complete()
        except NumericError:
            publication.close()
            _remove(folder, journal)
            raise
        except BaseException:
            publication.close()
            _undo_publication(folder)
            raise
        finally:
            publication.close()
            journal.close()
        _remove(folder, journal)
    finally:
        os.close(lock)


def _refuse_other_writers(target: OutputTarget) -> None:
    living = clean_leftovers(target.path)
    if living:
        raise _busy(target, living[0])


def _busy(target: OutputTarget, folder: WorkFolder) -> UsageError:
    return UsageError(
        f"another process is writing {target.entry}", path=target.path,
        got=f"process {writer_of(folder)}", remedy="wait for it, or choose another output path",
    )  # fmt: skip


def _claim(folder: WorkFolder, target: OutputTarget) -> int:
    """Lock the folder, made if need be; finish or undo a publication that was interrupted."""
    while True:
        lock = _lock(folder, target)
        if not _undo_publication(folder):
            return lock
        # It was killed between naming the files and cleaning up.
        _drop_journal(folder)
        settle(folder)
        os.close(lock)
        refuse_occupied(target)


def _undo_publication(folder: WorkFolder) -> bool:
    """Put final names back that an interrupted publication changed, and keep what was written.

    Returns True, with nothing changed, when the set was published.
    """
    if folder.read_plan() is None:
        return False
    if withdraw(folder):
        return True
    folder.plan.unlink()
    return False


def _lock(folder: WorkFolder, target: OutputTarget) -> int:
    folder.path.mkdir(0o700, exist_ok=True)
    if folder.path.is_symlink() or folder.path.lstat().st_uid != os.geteuid():
        raise UsageError("the work folder is not ours", path=folder.path, remedy="remove it")
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    plain = os.open(folder.lock, flags, 0o600)
    try:
        held = take_lock(folder)
    except BlockingIOError:
        os.close(plain)
        raise _busy(target, folder) from None
    if held is None:  # a system without locks
        held = os.dup(plain)
    os.close(plain)
    os.ftruncate(held, 0)
    os.pwrite(held, f"{os.getpid()}\n".encode(), 0)
    for inner in ("new", "old"):
        (folder.path / inner).mkdir(exist_ok=True)
    return held


def _has_every_file(target: OutputTarget, folder: WorkFolder) -> bool:
    """Whether the files of the journal are there: undoing a publication can cost a moved one."""
    paths = {folder.new(name): size for name, size in target.sizes.items()}
    return all(path.is_file() and path.stat().st_size == size for path, size in paths.items())


def _empty(folder: WorkFolder) -> None:
    _drop_journal(folder)
    shutil.rmtree(folder.path / "new")
    (folder.path / "new").mkdir()


def _refuse_full_disk(target: OutputTarget, folder: WorkFolder) -> None:
    """Check free space, less what an interrupted run has filled already."""
    kept = sum(item.stat().st_blocks * 512 for item in (folder.path / "new").iterdir())
    if target.free_bytes() < target.needed_bytes - kept:
        refuse_full_disk(target)


def _remove(folder: WorkFolder, journal: Journal) -> None:
    journal.close()
    _drop_journal(folder)
    settle(folder)


def _drop_journal(folder: WorkFolder) -> None:
    for path in (folder.path / NAME, (folder.path / NAME).with_suffix(".draft")):
        path.unlink(missing_ok=True)
