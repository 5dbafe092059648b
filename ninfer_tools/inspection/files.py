"""The files of an artifact: which are there, and whether their sizes are what they should be."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ninfer_formats.container import PART_HEADER_BYTES
from ninfer_formats.errors import NinferError
from ninfer_formats.reader import Artifact


@dataclass(frozen=True)
class FileState:
    """One file: `state` is present, missing or foreign (of another size or another artifact).

    `bytes` is None for a missing file; `expected_bytes` is what the directory says.
    """

    name: str
    state: str
    bytes: int | None
    expected_bytes: int
    problem: str | None = None

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


def list_files(artifact: Artifact) -> list[FileState]:
    """Return the state of the entry and of every part."""
    parts = range(1, len(artifact.files))
    return [_entry_state(artifact), *(_part_state(artifact, index) for index in parts)]


def is_readable(artifact: Artifact, index: int) -> bool:
    """Return whether file `index` is there and belongs to the artifact."""
    try:
        artifact.payload.file(index)
    except NinferError:
        return False
    return True


def _entry_state(artifact: Artifact) -> FileState:
    start = artifact.prefix.payload_start
    if artifact.version == 3:
        # Another size is refused when the file is opened.
        size = expected = start + artifact.files[0].payload_bytes
    else:
        size = artifact.file_bytes
        ends = [item.end for item in artifact.objects.values()]
        expected = start + max(ends) if ends else size
    return FileState(artifact.path.name, "present", size, expected)


def _part_state(artifact: Artifact, index: int) -> FileState:
    path = artifact.payload.file_path(index)
    expected = PART_HEADER_BYTES + artifact.files[index].payload_bytes
    try:
        artifact.payload.file(index)
    except NinferError as error:
        size = path.stat().st_size if path.is_file() else None
        state = "missing" if size is None else "foreign"
        return FileState(path.name, state, size, expected, str(error))
    return FileState(path.name, "present", expected, expected)
