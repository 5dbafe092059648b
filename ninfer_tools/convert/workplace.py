"""The hidden folder in which a conversion grows, and its way to the final name.

Rules V-50 to V-56, V-170, V-171 and V-175.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ninfer_formats.errors import NumericError, UsageError
from ninfer_formats.leftovers import clean_leftovers, settle, withdraw
from ninfer_formats.output_target import OutputTarget, refuse_full_disk, refuse_occupied
from ninfer_formats.placement import move_exclusively
from ninfer_formats.publication import Publication
from ninfer_formats.work_folder import WorkFolder
from ninfer_formats.write_plan import WritePlan
from ninfer_formats.writer import ArtifactWriter, Progress
from ninfer_formats.writer_lock import take_lock, writer_of
from ninfer_tools.convert.journal import NAME, Journal, read_journal
from ninfer_tools.convert.recipes.recipe_file import RecipeError
from ninfer_tools.convert.whole_file import write_whole
from ninfer_tools.convert.written_runs import WrittenRuns, is_kept


class ResumablePublication(Publication):
    """A publication whose files may be there already, from a run that was interrupted.

    Files beside the artifact, such as its report, come in with `add` when it is complete.
    """

    def __init__(self, target: OutputTarget, folder: WorkFolder) -> None:
        super().__init__(target, folder, lambda step: None)
        # With force, the only file of an artifact replaces the old one in one step.
        self._replaces = target.force and {*target.sizes, *target.existing()} == {target.entry}

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

    def add(self, name: str, content: bytes) -> None:
        """Publish another file together with the artifact; it gets its name before the entry."""
        write_whole(self._folder.new(name), content)
        sizes = {**self._target.sizes, name: len(content)}
        self._target = replace(self._target, sizes=sizes)
        self.file(name)

    def _set_aside(self) -> None:
        if not self._replaces:
            super()._set_aside()
            return
        refuse_occupied(self._target)
        for name in self._target.parts:
            if os.path.lexists(self._folder.final(name)):
                self._folder.final(name).rename(self._folder.old(name))

    def _place(self, name: str) -> None:
        if self._replaces and name == self._target.entry:
            self._folder.new(name).replace(self._folder.final(name))
        else:
            super()._place(name)


class ResumableWriter(ArtifactWriter):
    """An artifact writer that keeps checksums, and takes over what an earlier run has written."""

    def __init__(
        self, plan: WritePlan, publication: Publication, progress: Progress | None = None
    ) -> None:
        super().__init__(plan, publication, progress)
        self._runs: dict[str, WrittenRuns] = {}

    def write(self, object_id: str, data: bytes | np.ndarray, at: int = 0) -> None:
        """Write `data` into an object, `at` bytes behind its start."""
        super().write(object_id, data, at)
        view = memoryview(data if isinstance(data, bytes) else data.data).cast("B")
        self._runs.setdefault(object_id, WrittenRuns()).add(at, view)

    def runs(self, object_id: str) -> list[list[int]]:
        """Return the checksums of what was written of an object, for the journal."""
        return self._runs[object_id].as_record()

    def is_kept(self, object_id: str, runs: Any) -> bool:
        """Tell whether an earlier run wrote the object, and left these `runs` of it."""
        item = self.plan.objects[object_id]

        def read(at: int, count: int) -> bytes:
            found = self._extents(item.offset + at, count)
            return b"".join(os.pread(file, size, offset) for _, file, offset, size in found)

        return is_kept(runs, item.bytes, read)

    def skip(self, object_id: str) -> None:
        """Count an object as written in full."""
        self._written[object_id] = self.plan.objects[object_id].bytes


@dataclass(frozen=True)
class Workplace:
    """An open work folder: files, and the journal of finished objects."""

    publication: ResumablePublication
    journal: Journal
    entry: Path

    def sync(self, names: list[str]) -> None:
        """Make every byte written so far durable."""
        for name in names:
            os.fdatasync(self.publication.file(name))


@contextmanager
def open_workplace(target: OutputTarget, digest: str, resume: bool) -> Iterator[Workplace]:
    """Open `.<entry>.ninfer-convert/` for the plan `digest`, and publish when the block ends well.

    With `resume` the work of an interrupted run of the same plan is kept, otherwise the folder
    starts empty. A block that ends badly leaves the folder for a later `resume`, except after a
    NumericError or RecipeError, which the same inputs would meet again. Raises UsageError when
    another process works there, for another plan's journal, and as `publish`.
    """
    folder = _folder_of(target)
    _refuse_other_writers(target)
    lock = _claim(folder, target)
    try:
        journal = _prepare(folder, target, digest, resume)
        publication = ResumablePublication(target, folder)
        try:
            yield Workplace(publication, journal, folder.new(target.entry))
            publication.complete()
        except (NumericError, RecipeError):
            publication.close()
            _remove(folder, journal)
            raise
        except BaseException:
            publication.close()
            if _undo_publication(folder):
                _remove(folder, journal)
            raise
        finally:
            publication.close()
            journal.close()
        _remove(folder, journal)
    finally:
        os.close(lock)


def can_resume(target: OutputTarget) -> bool:
    """Tell whether an interrupted run left work that `resume` would take."""
    return (_folder_of(target).path / NAME).exists()


def recover_publication(target: OutputTarget) -> None:
    """Undo or finish what a killed run had begun to publish, before names are looked at.

    Does nothing while another process works there.
    """
    folder = _folder_of(target)
    if folder.read_plan() is None or not _is_ours(folder):
        return
    try:
        lock = take_lock(folder)
    except BlockingIOError:
        return
    if lock is not None:
        try:
            if _undo_publication(folder):
                _drop_journal(folder)
                settle(folder)
        finally:
            os.close(lock)


def _folder_of(target: OutputTarget) -> WorkFolder:
    return WorkFolder(target.parent / f".{target.entry}.ninfer-convert", target.entry)


def _prepare(folder: WorkFolder, target: OutputTarget, digest: str, resume: bool) -> Journal:
    """Return the journal of a folder that holds what `resume` takes over, and nothing else."""
    try:
        refuse_occupied(target)
        done = read_journal(folder.path, digest) if resume else {}
        if not done or not _has_every_file(target, folder):
            done = {}
            _empty(folder)
        _refuse_full_disk(target, folder)
        return Journal(folder.path / NAME, digest, done)
    except BaseException:
        if not (folder.path / NAME).exists():
            _drop_journal(folder)
            settle(folder)
        raise


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
    aside = folder.backups()
    # An entry that stands until it is replaced keeps `withdraw` from the files beside it.
    for name in aside if folder.entry not in aside else ():
        if not os.path.lexists(folder.final(name)):
            move_exclusively(folder.old(name), folder.final(name))
    folder.plan.unlink()
    return False


def _lock(folder: WorkFolder, target: OutputTarget) -> int:
    try:
        folder.path.mkdir(0o700)
    except FileExistsError:
        if not _is_ours(folder):
            raise UsageError(
                "the work folder cannot be used: a link, a file or a folder of another user has "
                "its name", path=folder.path, remedy="remove that, or choose another output path",
            ) from None  # fmt: skip
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


def _is_ours(folder: WorkFolder) -> bool:
    path = folder.path
    return path.is_dir() and not path.is_symlink() and path.lstat().st_uid == os.geteuid()


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
