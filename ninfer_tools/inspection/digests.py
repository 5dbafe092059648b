"""SHA-256 of every object and of every file, in one pass over the bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ninfer_formats.directory import StoredObject
from ninfer_formats.errors import printable
from ninfer_formats.reader import Artifact
from ninfer_tools.console import show_progress
from ninfer_tools.inspection.overview import directory_sha256
from ninfer_tools.inspection.recognition import BY_DIGEST, confirm, describe_match, recognise
from ninfer_tools.inspection.section import Section

_CHUNK_BYTES = 8 << 20
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Digests:
    """SHA-256 in hex: `objects` by id, `files` by name in file order."""

    objects: dict[str, str]
    files: dict[str, str]


def digest(artifact: Artifact) -> Section:
    """Return the digests, and the published artifact the file is, if it is one."""
    with show_progress(artifact.file_bytes, "digest") as progress:
        found = compute_digests(artifact, progress)
    directory = directory_sha256(artifact)
    published = _compare(artifact, found, directory)
    record = {
        "objects": found.objects,
        "files": found.files,
        "directory": directory,
        "published": published,
    }
    named = (*found.objects.items(), *found.files.items())
    lines = [f"{value}  {printable(name, 400)}" for name, value in named]
    lines.append(f"{directory}  (directory)")
    lines += [item["text"] for item in published]
    return Section("digest", record, "\n".join(lines))


def compute_digests(artifact: Artifact, progress: Progress) -> Digests:
    """Hash files and objects side by side: every chunk is read once and hashed twice."""
    walk = _ObjectHashes(list(artifact.objects.values()))
    files = {}
    with ThreadPoolExecutor(1) as pool:
        for index in range(len(artifact.files)):
            begin, size = _payload_span(artifact, index)
            data, whole = artifact.payload.file(index), hashlib.sha256()
            start = artifact.payload.extents(begin, 1)[0].offset if size else data.size
            for at in range(0, data.size, _CHUNK_BYTES):
                chunk = data[at : at + _CHUNK_BYTES]
                pending = pool.submit(whole.update, chunk.data)
                walk.update(chunk[max(0, start - at) :], begin + max(at - start, 0))
                pending.result()
                progress(chunk.size)
            files[artifact.payload.file_path(index).name] = whole.hexdigest()
    return Digests(walk.finish(), files)


def _payload_span(artifact: Artifact, index: int) -> tuple[int, int]:
    """Return (logical begin, bytes) of the payload of a file."""
    sizes = [item.payload_bytes for item in artifact.files]
    return sum(sizes[:index]), sizes[index]


class _ObjectHashes:
    """Hashes objects while logical payload bytes go by in order."""

    def __init__(self, objects: list[StoredObject]) -> None:
        self._left: Iterator[StoredObject] = iter(objects)
        self._item = next(self._left, None)
        self._hash = hashlib.sha256()
        self._found: dict[str, str] = {}

    def update(self, data: np.ndarray, offset: int) -> None:
        """Take the payload bytes `data` that begin at logical `offset`."""
        end = offset + data.size
        while self._item is not None and self._item.offset < end:
            item = self._item
            self._hash.update(data[max(0, item.offset - offset) : item.end - offset].data)
            if item.end > end:
                return
            self._close(item)

    def finish(self) -> dict[str, str]:
        return self._found

    def _close(self, item: StoredObject) -> None:
        self._found[item.id] = self._hash.hexdigest()
        self._hash = hashlib.sha256()
        self._item = next(self._left, None)


def _compare(artifact: Artifact, found: Digests, directory: str) -> list[dict[str, Any]]:
    if len(found.files) > 1:
        return []
    whole = next(iter(found.files.values()))
    published = confirm(whole)
    if published is not None:
        return [describe_match(published, BY_DIGEST)]
    return [
        item | {"text": f"{item['text']}, {_verdict(item)}"}
        for item in recognise(artifact, directory)
    ]


def _verdict(item: dict[str, Any]) -> str:
    if item["sha256"] is None:
        return "whose SHA-256 is not known"
    return f"but its SHA-256 is {item['sha256']}: this is another file"
