"""Bring files into a folder: checked before they start, verified before they get their names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninfer_formats.errors import UsageError
from ninfer_tools.console import format_bytes
from ninfer_tools.hub.artifact_files import check_entry, is_entry
from ninfer_tools.hub.digests import ContentHash, Digest, expected_digests
from ninfer_tools.hub.partial import Partial, kept_bytes
from ninfer_tools.hub.progress import show_transfer
from ninfer_tools.hub.snapshot import HubSnapshot
from ninfer_tools.hub.transfer import Download, Watcher, explain_disk_errors, fetch

# Room for the file system's own bookkeeping.
_SPACE_SLACK = 1 << 20
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class Delivered:
    """A file at its final name; `origins` are those whose digest it was checked against."""

    name: str
    path: Path
    bytes: int
    sha256: str
    origins: tuple[str, ...]
    was_there: bool

    def as_record(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "path": str(self.path),
            "bytes": self.bytes,
            "sha256": self.sha256,
            "verified_by": list(self.origins),
            "was_there": self.was_there,
        }

    def describe(self) -> str:
        """Return how the file was verified, in words."""
        state = "was there already" if self.was_there else "downloaded"
        return f"{state}, verified against {', '.join(self.origins)}"


def deliver(
    snapshot: HubSnapshot,
    names: list[str],
    known: Mapping[str, Digest],
    folder: Path,
    force: bool,
    notice: Callable[[str], None],
) -> list[Delivered]:
    """Bring `names` into `folder`, keeping their paths; return them in the same order.

    Everything that can be refused is refused before the first byte: an existing different file
    (without `force`), a folder in the way, digests that contradict each other, a disk without
    room. Raises NinferError; complete files stay, and partial ones for the next call.
    """
    downloads = [_plan(snapshot, name, known, folder) for name in names]
    found = {item.file.path: _existing(item, force) for item in downloads}
    missing = [item for item in downloads if found[item.file.path] is None]
    _make_room(missing, folder)
    with ExitStack() as opened:
        partials = []
        for item in missing:
            partials.append(_bring(item, snapshot, names, notice))
            opened.callback(partials[-1].close)
        _publish(partials, force)
    hashes = {partial.final: partial.hash for partial in partials}
    return [
        found[item.file.path] or _delivered(item, hashes[item.final], was_there=False)
        for item in downloads
    ]


def _plan(snapshot: HubSnapshot, name: str, known: Mapping[str, Digest], folder: Path) -> Download:
    digests = expected_digests(snapshot, name, [known[name]] if name in known else [])
    return Download(
        snapshot.reference.repository,
        snapshot.commit,
        snapshot.file(name),
        folder / name,
        digests,
    )


def _existing(download: Download, force: bool) -> Delivered | None:
    """Return the file when it is there with the right content, None when it may be written."""
    final = download.final
    if not os.path.lexists(final):
        return None
    if final.is_dir():
        raise UsageError("a folder is in the way", path=final, remedy="choose another with --to")
    if final.is_file() and final.stat().st_size == download.file.bytes:
        content = _hash_file(download)
        if all(content.value(digest) == digest.hex for digest in download.digests):
            return _delivered(download, content, was_there=True)
    if not force:
        raise UsageError(
            "a different file of this name is there",
            path=final,
            remedy="choose another folder with --to, or pass --force to replace it",
        )
    return None


def _hash_file(download: Download) -> ContentHash:
    content = ContentHash(download.file)
    title = f"checking {download.final.name}"
    with download.final.open("rb") as file, show_transfer(download.file.bytes, title) as advance:
        while block := file.read(_BLOCK_BYTES):
            content.update(block)
            advance(len(block))
    return content


def _make_room(downloads: list[Download], folder: Path) -> None:
    """Create the folders and check the free space for what is still to come."""
    try:
        for parent in {folder, *(item.final.parent for item in downloads)}:
            parent.mkdir(parents=True, exist_ok=True)
        free = os.statvfs(folder)
    except OSError as error:
        raise UsageError(
            "cannot write here",
            path=error.filename or folder,
            got=error.strerror,
            remedy="choose another folder with --to",
        ) from error
    needed = sum(item.file.bytes - kept_bytes(item.final, item.file) for item in downloads)
    available = free.f_bavail * free.f_frsize
    if downloads and available < needed + _SPACE_SLACK:
        raise UsageError(
            "not enough free disk space",
            path=folder,
            got=f"{available} bytes ({format_bytes(available)}) free",
            want=f"{needed + _SPACE_SLACK} bytes ({format_bytes(needed)})",
            remedy="free disk space or choose another folder with --to",
        )


def _bring(
    download: Download, snapshot: HubSnapshot, names: list[str], notice: Callable[[str], None]
) -> Partial:
    with show_transfer(download.file.bytes, download.final.name) as advance:
        partial = fetch(download, Watcher(advance, notice))
    try:
        if is_entry(download.file.path):
            check_entry(partial.path, download.file.path, snapshot, names)
    except BaseException:
        partial.close()
        raise
    return partial


def _publish(partials: list[Partial], force: bool) -> None:
    """Give all files their final names, entries last; nothing is replaced before all are whole."""
    if force and len(partials) > 1:
        # An old entry must not be seen beside new parts.
        for partial in partials:
            if is_entry(partial.final.name):
                partial.final.unlink(missing_ok=True)
    for partial in partials:
        try:
            with explain_disk_errors(partial):
                partial.publish(force)
        except FileExistsError as error:
            raise UsageError(
                "the file was created by another process meanwhile; it was left as it is",
                path=partial.final,
                remedy="run the same command again",
            ) from error


def _delivered(download: Download, content: ContentHash, was_there: bool) -> Delivered:
    origins = tuple(dict.fromkeys(digest.origin for digest in download.digests))
    return Delivered(
        download.file.path,
        download.final,
        download.file.bytes,
        content.sha256,
        origins,
        was_there,
    )
