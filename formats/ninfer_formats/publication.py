"""Write a set of output files so that nothing half-written ever has a final name."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.leftovers import clean_leftovers, settle
from ninfer_formats.output_target import (
    OutputTarget,
    refuse_full_disk,
    refuse_occupied,
    resolve_target,
)
from ninfer_formats.placement import link_or_move, sync_folder
from ninfer_formats.work_folder import WorkFolder
from ninfer_formats.writer_lock import create_work_folder, writer_of

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Publication:
    """The open output files of one `publish` block."""

    def __init__(
        self, target: OutputTarget, folder: WorkFolder, on_step: Callable[[str], None]
    ) -> None:
        self._target, self._folder, self._on_step = target, folder, on_step
        self._files: dict[str, int] = {}

    def file(self, name: str) -> int:
        """Return the descriptor of output file `name`, open for reading and writing.

        The file already has its final size, all zero: any write order will do, and what is never
        written stays a hole. Writing past that size is found when the block ends. The block
        closes the descriptor. Raises UsageError for a name that was not announced.
        """
        if name not in self._target.sizes:
            raise UsageError("not one of the announced output files", where=name)
        if name not in self._files:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            self._files[name] = os.open(self._folder.new(name), flags, 0o666)
            os.ftruncate(self._files[name], self._target.sizes[name])
        return self._files[name]

    def close(self) -> None:
        """Close every descriptor that is still open, without publishing."""
        while self._files:
            # Bytes that are thrown away may fail to reach the disk.
            with suppress(OSError):
                os.close(self._files.popitem()[1])

    def complete(self) -> None:
        """Check the sizes, make the bytes durable, and give the files their final names."""
        for name, size in self._target.sizes.items():
            self._finish(name, size)
        self._folder.write_plan(list(self._target.sizes))
        self._on_step("planned")
        if self._target.force and self._is_one_file():
            self._folder.new(self._target.entry).replace(self._target.path)
        else:
            self._publish_set()
        sync_folder(self._target.parent)
        self._on_step("entry published")

    def _finish(self, name: str, size: int) -> None:
        descriptor = self._files.get(name)
        written = None if descriptor is None else os.fstat(descriptor).st_size
        if descriptor is None or written != size:
            raise NinferError(
                "the output does not have its planned size",
                path=self._target.parent / name,
                got="no file" if written is None else f"{written} bytes",
                want=f"{size} bytes",
            )
        os.fsync(descriptor)
        del self._files[name]
        os.close(descriptor)
        self._on_step(f"written {name}")

    def _is_one_file(self) -> bool:
        return {*self._target.sizes, *self._target.existing()} == {self._target.entry}

    def _publish_set(self) -> None:
        if self._target.force:
            self._set_aside()
        for name in self._target.parts:
            self._place(name)
            self._on_step(f"placed {name}")
        sync_folder(self._target.parent)
        self._place(self._target.entry)

    def _set_aside(self) -> None:
        # Entry first: from here on the old set is absent, never mixed with the new one.
        refuse_occupied(self._target)
        for name in self._target.existing():
            self._folder.final(name).rename(self._folder.old(name))
            sync_folder(self._target.parent)
            self._on_step(f"set aside {name}")

    def _place(self, name: str) -> None:
        final = self._folder.final(name)
        try:
            link_or_move(self._folder.new(name), final)
        except FileExistsError as error:
            raise UsageError(
                "the output path was created by another process meanwhile; it was left as it is",
                path=final,
                remedy="choose another output path or pass --force",
            ) from error


@contextmanager
def publish(
    entry_path: str | os.PathLike[str],
    sizes: Mapping[str, int],
    *,
    force: bool = False,
    replaces: Iterable[str] = (),
    on_step: Callable[[str], None] | None = None,
) -> Iterator[Publication]:
    """Write the files `sizes` (name -> exact bytes, the entry among them) beside each other.

    The files get their final names, parts first and the entry last, when the block is left
    normally; when it is left by any exception nothing of it remains. Every byte is durable
    before its final name appears. `force` replaces existing files, and removes those named in
    `replaces` (parts of the old set that the new set does not have). `on_step` is told each
    step after it was taken.

    Raises UsageError, with nothing created, for a path that cannot be written, exists (without
    `force`), is being written by another process, or lies on a disk without room; NinferError
    when the disk fills up or a file does not reach its planned size. Other OSErrors of the block
    pass unchanged.
    """
    target = resolve_target(entry_path, sizes, force=force, replaces=replaces)
    folder, lock = _claim(target)
    publication = Publication(target, folder, on_step or (lambda step: None))
    try:
        try:
            yield publication
            _complete(publication, target)
        finally:
            publication.close()
            settle(folder)
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        raise _writing_stopped(target, error) from error
    finally:
        os.close(lock)


def check_output(
    entry_path: str | os.PathLike[str],
    sizes: Mapping[str, int],
    *,
    force: bool = False,
    replaces: Iterable[str] = (),
) -> None:
    """Raise what `publish` would raise before the first byte, and create nothing."""
    target = resolve_target(entry_path, sizes, force=force, replaces=replaces)
    refuse_occupied(target)
    refuse_full_disk(target)


def _complete(publication: Publication, target: OutputTarget) -> None:
    try:
        publication.complete()
    except OSError as error:
        raise _writing_stopped(target, error) from error


def _claim(target: OutputTarget) -> tuple[WorkFolder, int]:
    """Clean leftovers, check what only then is certain, and lock a fresh work folder."""
    try:
        _refuse_living_writer(target, clean_leftovers(target.path))
        refuse_occupied(target)
        refuse_full_disk(target)
        folder, lock = create_work_folder(target.parent, target.entry)
    except OSError as error:
        raise UsageError(
            "cannot write here",
            path=target.path,
            got=error.strerror,
            remedy="choose another output path",
        ) from error
    try:
        # A writer that started at the same moment may have missed us as we missed it.
        _refuse_living_writer(
            target, [other for other in clean_leftovers(target.path) if other != folder]
        )
    except BaseException:
        settle(folder)
        os.close(lock)
        raise
    return folder, lock


def _refuse_living_writer(target: OutputTarget, living: list[WorkFolder]) -> None:
    if living:
        raise UsageError(
            f"another process is writing {target.entry}",
            path=target.path,
            got=f"process {writer_of(living[0])}",
            remedy="wait for it, or choose another output path",
        )


def _writing_stopped(target: OutputTarget, error: OSError) -> NinferError:
    full = error.errno in _DISK_FULL
    return NinferError(
        f"writing stopped: {error.strerror}",
        path=target.path,
        want=f"{target.needed_bytes} bytes of free disk space" if full else None,
        remedy="nothing was left behind; "
        + ("free disk space or choose another output path" if full else "check the output path"),
    )
