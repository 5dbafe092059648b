"""Plan the bytes of an artifact before the first one is written: offsets, headers, files."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ninfer_formats import numeric_formats as nf
from ninfer_formats.container import (
    ENTRY_HEADER,
    LEGACY_HEADER,
    MAGIC,
    PART_HEADER_BYTES,
    PART_MAGIC,
    PAYLOAD_ALIGNMENT,
)
from ninfer_formats.directory import (
    Binding,
    Component,
    FileEntry,
    Identity,
    Resource,
    StoredObject,
    Tensor,
    Use,
)
from ninfer_formats.directory_json import directory_json, legacy_directory_json
from ninfer_formats.errors import UsageError
from ninfer_formats.layouts.geometry import TENSOR_ALIGNMENT, align_up, encoded_size
from ninfer_formats.strict_json import write_json

DEFAULT_MAX_FILE_BYTES = 32_000_000_000


@dataclass(frozen=True)
class PlannedFile:
    """One output file: its name, fixed header bytes, payload start and byte counts. A payload
    byte at logical offset x of [begin, begin + payload_bytes) lies at start + x - begin."""

    name: str
    header: bytes
    start: int
    begin: int
    payload_bytes: int

    @property
    def bytes(self) -> int:
        return self.start + self.payload_bytes


@dataclass(frozen=True)
class WritePlan:
    """Every byte position of an artifact that is about to be written."""

    version: int
    objects: Mapping[str, StoredObject]
    files: tuple[PlannedFile, ...]

    @property
    def bytes(self) -> int:
        """Byte count of all files together."""
        return sum(item.bytes for item in self.files)


@dataclass(frozen=True)
class DirectoryDraft:
    """A version 3 directory without offsets of files: what `plan_v3` turns into bytes."""

    components: Sequence[Component]
    objects: Sequence[StoredObject]
    bindings: Mapping[str, Binding]
    uses: Sequence[Use]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def json(self, files: Iterable[FileEntry]) -> bytes:
        return write_json(
            directory_json(
                self.components,
                self.objects,
                self.bindings,
                self.uses,
                self.metadata,
                self.provenance,
                files,
            )
        )


def make_tensor(id: str, shape: Sequence[int], format: str, divisors: int = 1) -> Tensor:
    """Return an unplaced tensor (offset 0) with the layout and size of its format."""
    layout = nf.FORMATS[format].layout
    sizes = tuple(shape)
    return Tensor(
        id, sizes, format, layout, 0, encoded_size(format, layout, sizes, divisors), divisors
    )


def make_resource(id: str, count: int) -> Resource:
    """Return an unplaced resource of `count` bytes."""
    return Resource(id, nf.RAW_ENCODING, 0, count)


def place_objects(objects: Iterable[StoredObject]) -> tuple[StoredObject, ...]:
    """Return the objects at the offsets of the normal writer: in order, tensors on multiples of
    256 bytes, resources anywhere."""
    placed: list[StoredObject] = []
    cursor = 0
    for item in objects:
        alignment = TENSOR_ALIGNMENT if isinstance(item, Tensor) else 1
        offset = align_up(cursor, alignment)
        placed.append(move_object(item, offset))
        cursor = offset + item.bytes
    return tuple(placed)


def move_object(item: StoredObject, offset: int, id: str | None = None) -> StoredObject:
    """Return the object at another offset, perhaps under another id."""
    name = item.id if id is None else id
    if isinstance(item, Tensor):
        return Tensor(name, item.shape, item.format, item.layout, offset, item.bytes, item.divisors)
    return Resource(name, item.encoding, offset, item.bytes)


def plan_v2(identity: Identity, objects: Sequence[StoredObject], name: str) -> WritePlan:
    """Plan a version 2 artifact of placed objects; errors where version 2 has no such format."""
    json = write_json(legacy_directory_json(identity, objects))
    start = align_up(LEGACY_HEADER.size + len(json), PAYLOAD_ALIGNMENT)
    header = LEGACY_HEADER.pack(MAGIC + b"\2", len(json)) + json
    file = PlannedFile(name, header, start, 0, objects[-1].end)
    return WritePlan(2, {item.id: item for item in objects}, (file,))


def plan_v3(
    draft: DirectoryDraft,
    name: str,
    max_file_bytes: int = DEFAULT_MAX_FILE_BYTES,
    artifact_id: bytes | None = None,
    salt: bytes = b"",
) -> WritePlan:
    """Plan a version 3 artifact of placed objects in one or several files.

    The JSON is padded with spaces so that the payload starts right behind it on a multiple of
    4096. `artifact_id` (16 bytes) is derived from the directory and `salt` when not given, so
    that the same conversion gives the same bytes.
    """
    payload_bytes = max(item.end for item in draft.objects)
    json, files = _fit_files(draft, name, payload_bytes, max_file_bytes)
    identifier = artifact_id or derive_artifact_id(json, salt)
    start = ENTRY_HEADER.size + len(json)
    header = ENTRY_HEADER.pack(MAGIC + b"\3", len(json), identifier) + json
    planned = [PlannedFile(name, header, start, 0, files[0].payload_bytes)]
    for index, item in enumerate(files[1:], 1):
        head = ENTRY_HEADER.pack(PART_MAGIC + b"\3", index, identifier)
        begin = planned[-1].begin + planned[-1].payload_bytes
        planned.append(
            PlannedFile(item.path or "", head, PART_HEADER_BYTES, begin, item.payload_bytes)
        )
    return WritePlan(3, {item.id: item for item in draft.objects}, tuple(planned))


def derive_artifact_id(json: bytes, salt: bytes = b"") -> bytes:
    """Return 16 bytes in UUID version 4 form from the directory bytes and a salt."""
    digest = hashlib.sha256(json.rstrip(b" ") + b"\0" + salt).digest()
    return uuid.UUID(bytes=digest[:16], version=4).bytes


def choose_artifact_id(text: str) -> bytes | None:
    """Return the 16 bytes that `derived` (None), `random` or 32 hexadecimal digits ask for."""
    if text == "derived":
        return None
    if text == "random":
        return uuid.UUID(bytes=secrets.token_bytes(16), version=4).bytes
    try:
        identifier = bytes.fromhex(text)
    except ValueError:
        identifier = b""
    if len(identifier) != 16:
        raise UsageError(
            "not an artifact id", got=text, want="derived, random or 32 hexadecimal digits"
        )
    return identifier


def split_payload(
    name: str, entry_start: int, payload_bytes: int, max_file_bytes: int
) -> tuple[FileEntry, ...]:
    """Return the files of a payload: one, or an entry and parts filled to whole 4096 bytes."""
    if entry_start + payload_bytes <= max_file_bytes:
        return (FileEntry(None, payload_bytes),)
    entry_bytes = (max_file_bytes - entry_start) // PAYLOAD_ALIGNMENT * PAYLOAD_ALIGNMENT
    part_bytes = (max_file_bytes - PART_HEADER_BYTES) // PAYLOAD_ALIGNMENT * PAYLOAD_ALIGNMENT
    if entry_bytes < PAYLOAD_ALIGNMENT or part_bytes < PAYLOAD_ALIGNMENT:
        raise UsageError(
            "files are too small for this directory",
            got=f"--max-file-bytes {max_file_bytes}",
            want=f">= {entry_start + PAYLOAD_ALIGNMENT}",
        )
    if not name.isprintable():
        raise UsageError(
            "parts cannot be named after this output: its name is no plain text", got=repr(name)
        )
    files = [FileEntry(None, entry_bytes)]
    left = payload_bytes - entry_bytes
    while left > 0:
        files.append(FileEntry(f"{name}.part-{len(files):04d}", min(left, part_bytes)))
        left -= part_bytes
    return tuple(files)


def _fit_files(
    draft: DirectoryDraft, name: str, payload_bytes: int, max_file_bytes: int
) -> tuple[bytes, tuple[FileEntry, ...]]:
    """Return the padded JSON and the files. The list of files is part of the JSON whose size
    decides the files, so the reserve grows until both fit."""
    files: tuple[FileEntry, ...] = (FileEntry(None, payload_bytes),)
    reserve = 0
    while True:
        json = draft.json(files)
        needed = align_up(ENTRY_HEADER.size + len(json), PAYLOAD_ALIGNMENT) - ENTRY_HEADER.size
        if needed <= reserve:
            return json.ljust(reserve), files
        reserve = needed
        files = split_payload(name, ENTRY_HEADER.size + reserve, payload_bytes, max_file_bytes)
