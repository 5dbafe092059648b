"""Open an artifact of any container version behind one interface."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ninfer_formats.bindings import make_use
from ninfer_formats.container import MAX_DIRECTORY_BYTES, Prefix, read_prefix
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
from ninfer_formats.directory_legacy import (
    LegacyDirectory,
    count_keys_legacy,
    read_directory_legacy,
)
from ninfer_formats.directory_v3 import DirectoryV3, count_keys_v3, read_directory_v3
from ninfer_formats.errors import ArtifactError, NinferError
from ninfer_formats.legacy_view import LegacyView
from ninfer_formats.object_records import find_object_problem
from ninfer_formats.parameters import Parameter, resolve_parameter
from ninfer_formats.payload import MappedPayload, Payload, map_file, open_regular
from ninfer_formats.strict_json import parse_json

if TYPE_CHECKING:
    from ninfer_formats.completeness import Examination


class Artifact:
    """One opened artifact: a checked directory over payload bytes, memory-mapped for files.

    Versions 1 and 2 are presented through the names, components and uses of version 3 by the
    registered inventories; where the identity is not registered those are empty.
    """

    def __init__(
        self,
        path: Path,
        prefix: Prefix,
        directory: DirectoryV3 | LegacyDirectory,
        payload: Payload,
        files: tuple[FileEntry, ...],
        file_bytes: int,
    ) -> None:
        self.path, self.prefix, self.payload = path, prefix, payload
        self.files, self.file_bytes = files, file_bytes
        self._directory = directory

    @property
    def version(self) -> int:
        return self.prefix.version

    @property
    def objects(self) -> Mapping[str, StoredObject]:
        """Stored objects by id, in file order."""
        return self._directory.objects

    @property
    def identity(self) -> Identity | None:
        """Identity of a version 1 or 2 artifact, None in version 3."""
        directory = self._directory
        return directory.identity if isinstance(directory, LegacyDirectory) else None

    @cached_property
    def legacy(self) -> LegacyView | None:
        """How a version 1 or 2 directory matches the registered inventories."""
        directory = self._directory
        if isinstance(directory, LegacyDirectory):
            return LegacyView(self.version, directory.identity, directory.objects)
        return None

    @property
    def components(self) -> Mapping[str, Component]:
        if isinstance(self._directory, DirectoryV3):
            return self._directory.components
        return self.legacy.components if self.legacy else {}

    @property
    def bindings(self) -> Mapping[str, Binding]:
        """What every logical parameter is made of, by version 3 name."""
        if isinstance(self._directory, DirectoryV3):
            return self._directory.bindings
        return self.legacy.bindings if self.legacy else {}

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        directory = self._directory
        if isinstance(directory, DirectoryV3):
            return tuple(make_use(raw, directory.counts) for raw in directory.raw_uses)
        return self.legacy.uses if self.legacy else ()

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._directory.metadata if isinstance(self._directory, DirectoryV3) else {}

    @property
    def provenance(self) -> Mapping[str, Any]:
        return self._directory.provenance if isinstance(self._directory, DirectoryV3) else {}

    @cached_property
    def resources(self) -> dict[tuple[str, str], Resource]:
        """Resource objects by (component, role)."""
        found = {}
        for component in self.components.values():
            for role, target in component.resources.items():
                item = self.objects[target]
                if isinstance(item, Resource):
                    found[component.name, role] = item
        return found

    def resource(self, role: str, component: str | None = None) -> bytes:
        """Return the bytes of the resource with this role."""
        matches = {
            name: item
            for (name, item_role), item in self.resources.items()
            if item_role == role and component in (None, name)
        }
        if len(matches) != 1:
            roles = sorted({f"{name}:{item_role}" for name, item_role in self.resources})
            what = "resource role is ambiguous" if matches else "artifact has no such resource"
            raise ArtifactError(what, path=self.path, got=role, want=", ".join(roles) or None)
        return self.payload_of(next(iter(matches.values())).id).tobytes()

    def payload_of(self, object_id: str) -> np.ndarray:
        """Return the stored bytes of an object, uint8, without copying inside one file.

        Raises ArtifactError when the object cannot be used (unknown format, wrong size, …).
        """
        problem = find_object_problem(self.objects[object_id])
        if problem is not None:
            problem.path = self.path
            raise problem
        return self.raw_payload(object_id)

    def raw_payload(self, object_id: str) -> np.ndarray:
        """Return the stored bytes of an object whatever its format."""
        item = self.objects[object_id]
        return self.payload.read(item.offset, item.bytes)

    def parameter(self, name: str) -> Parameter:
        """Return a logical parameter: its parts, inferred shape, row views and decoded values."""
        binding = self.bindings.get(name)
        if binding is None:
            raise ArtifactError("artifact has no such parameter", path=self.path, got=name)
        return resolve_parameter(name, binding, self)

    def raw_directory(self) -> bytes:
        """Return the JSON directory as it is stored, padding included."""
        begin = self.prefix.json_offset
        return self.payload.header(0)[begin : begin + self.prefix.json_bytes].tobytes()

    @cached_property
    def examination(self) -> Examination:
        """What the directory says about completeness, worked out once on first use."""
        from ninfer_formats.completeness import Examination

        return Examination(self)

    def find_problems(self) -> list[ArtifactError]:
        """Return every object that cannot be used, without reading payload bytes."""
        problems = (find_object_problem(item) for item in self.objects.values())
        return [problem for problem in problems if problem is not None]

    def tensors(self) -> list[Tensor]:
        return [item for item in self.objects.values() if isinstance(item, Tensor)]


def open_artifact(
    path: str | os.PathLike[str], *, max_directory_bytes: int = MAX_DIRECTORY_BYTES
) -> Artifact:
    """Open an artifact of container version 1, 2 or 3 through memory maps.

    `path` is the entry file. Raises UsageError for a path that cannot be read, ForeignFileError
    for other files, ArtifactError for anything `specs/container.md` calls fatal at open.
    """
    entry = Path(path)
    descriptor, size = open_regular(entry)
    mapped = map_file(descriptor, size)
    prefix = read_prefix(mapped[:64].tobytes(), size, entry, max_directory_bytes)
    raw = mapped[prefix.json_offset : prefix.json_offset + prefix.json_bytes].tobytes()
    try:
        root = parse_json(raw, count_keys_v3 if prefix.version == 3 else count_keys_legacy)
        del raw
        if prefix.version == 3:
            return _open_v3(entry, prefix, root, mapped, size)
        return _open_legacy(entry, prefix, root, mapped, size)
    except ArtifactError as error:
        error.path = error.path or entry
        raise


def list_parts(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the part names of the artifact at `path`, none where there is no artifact."""
    try:
        files = open_artifact(path).files
    except NinferError:
        return ()
    return tuple(item.path for item in files if item.path is not None)


def _open_v3(entry: Path, prefix: Prefix, root: Any, mapped: np.ndarray, size: int) -> Artifact:
    directory = read_directory_v3(root, entry.name)
    want = prefix.payload_start + directory.files[0].payload_bytes
    if size != want:
        raise ArtifactError(
            f"file is {size} bytes, directory says {want}", remedy=_size_remedy(size, want)
        )
    payload = MappedPayload(
        entry, mapped, prefix.payload_start, directory.files, prefix.artifact_id
    )
    total = size + sum(4096 + item.payload_bytes for item in directory.files[1:])
    return Artifact(entry, prefix, directory, payload, directory.files, total)


def _open_legacy(entry: Path, prefix: Prefix, root: Any, mapped: np.ndarray, size: int) -> Artifact:
    directory = read_directory_legacy(root, prefix.version)
    want = prefix.payload_start + directory.payload_end
    if size < want:
        raise ArtifactError(
            f"file is {size} bytes, directory says {want}", remedy=_size_remedy(size, want)
        )
    files = (FileEntry(None, max(size - prefix.payload_start, 0)),)
    payload = MappedPayload(entry, mapped, prefix.payload_start, files, None)
    return Artifact(entry, prefix, directory, payload, files, size)


def _size_remedy(size: int, want: int) -> str:
    if size < want:
        return f"{want - size} bytes are missing: download or copy it again"
    return "bytes were appended: restore the original file"
