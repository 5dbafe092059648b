"""The version 3 directory: components, objects, bindings, uses and files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ninfer_formats.bindings import LazyBindings, check_uses, read_bindings
from ninfer_formats.components import read_components, read_metadata, read_open_object
from ninfer_formats.directory import Component, FileEntry, Resource, StoredObject, Tensor
from ninfer_formats.errors import ArtifactError
from ninfer_formats.layouts.geometry import MAX_OFFSET
from ninfer_formats.object_records import (
    check_members,
    check_order,
    index_objects,
    read_divisors,
    read_id,
    read_integer,
    read_plain_tensor,
    read_shape,
    read_span,
)
from ninfer_formats.strict_json import count_keys

_ROOT = frozenset({"components", "objects", "bindings", "uses", "files"})
_ROOT_OPTIONAL = frozenset({"metadata", "provenance"})
_FILE = frozenset({"path", "payload_bytes"})
_TENSOR = frozenset({"id", "kind", "shape", "format", "layout", "offset", "bytes"})
_TENSOR_OPTIONAL = frozenset({"divisors"})
_RESOURCE = frozenset({"id", "kind", "encoding", "offset", "bytes"})


@dataclass(frozen=True)
class DirectoryV3:
    """A checked version 3 directory; `raw_uses` become records through `make_use`."""

    objects: Mapping[str, StoredObject]
    components: Mapping[str, Component]
    bindings: LazyBindings
    raw_uses: list[dict[str, Any]]
    files: tuple[FileEntry, ...]
    metadata: Mapping[str, Any]
    provenance: Mapping[str, Any]
    counts: Mapping[str, int]


def read_directory_v3(root: Any, entry_name: str) -> DirectoryV3:
    """Check a parsed directory. `entry_name` is the file's present name: no part may have it.

    Raises ArtifactError for everything `specs/container.md` calls fatal at open.
    """
    check_members(root, "directory", required=_ROOT, optional=_ROOT_OPTIONAL)
    files = _read_files(root["files"], entry_name)
    objects = _read_objects(root["objects"], sum(item.payload_bytes for item in files))
    counts = {
        item.id: math.prod(item.shape) for item in objects.values() if isinstance(item, Tensor)
    }
    bindings = read_bindings(root["bindings"], counts)
    return DirectoryV3(
        objects=objects,
        components=read_components(root["components"], objects),
        bindings=LazyBindings(bindings, counts),
        raw_uses=check_uses(root["uses"], bindings, counts),
        files=files,
        metadata=read_metadata(root.get("metadata", {})),
        provenance=read_open_object(root.get("provenance", {}), "provenance"),
        counts=counts,
    )


def count_keys_v3(root: Any) -> int:
    """Return the number of keys of a directory, relying on the record sizes that
    `read_directory_v3` enforces: it is exact for every directory that passes there."""
    try:
        bindings, uses = root["bindings"], root["uses"]
        parts = [item["parts"] for item in bindings.values() if "parts" in item]
        total = len(root) + sum(map(len, root["objects"]))
        total += len(bindings) + sum(map(len, bindings.values())) + 2 * sum(map(len, parts))
        total += sum(map(len, uses))
        open_values = [use["auxiliaries"] for use in uses if "auxiliaries" in use]
        open_values += [root.get(name) for name in ("components", *_ROOT_OPTIONAL, "files")]
    except (TypeError, KeyError, AttributeError):
        return -1
    return total + count_keys(open_values)


def _read_files(value: Any, entry_name: str) -> tuple[FileEntry, ...]:
    if type(value) is not list or not value:
        raise ArtifactError("not a nonempty array", where="files")
    files = []
    seen = {entry_name}
    for index, record in enumerate(value):
        where = f"files[{index}]"
        check_members(record, where, required=_FILE)
        path = record["path"]
        if index == 0 and path is not None:
            raise ArtifactError("the entry has no path", where=where, got=path, want="null")
        if index > 0:
            seen.add(_read_part_name(path, where, seen))
        size = read_integer(record["payload_bytes"], where, "payload_bytes", least=1)
        files.append(FileEntry(path, size))
    if sum(item.payload_bytes for item in files) > MAX_OFFSET:
        raise ArtifactError("files hold too many bytes", where="files", want=f"<= {MAX_OFFSET}")
    return tuple(files)


def _read_part_name(value: Any, where: str, seen: set[str]) -> str:
    path = read_id(value, where)
    if path in seen:
        raise ArtifactError("part name is taken twice or by the entry", where=where, got=path)
    if path in (".", "..") or "/" in path or "\\" in path:
        raise ArtifactError(
            "part must lie in the entry's own folder", where=where, got=path, want="a file name"
        )
    return path


def _read_objects(value: Any, payload_bytes: int) -> dict[str, StoredObject]:
    if type(value) is not list or not value:
        raise ArtifactError("not a nonempty array", where="objects")
    objects = [
        read_plain_tensor(record, "id") or _read_object(record, index)
        for index, record in enumerate(value)
    ]
    index = index_objects(objects)
    check_order(objects, payload_bytes)
    return index


def _read_object(record: Any, index: int) -> StoredObject:
    kind = record.get("kind") if type(record) is dict else None
    if kind == "resource":
        check_members(record, "objects", index, required=_RESOURCE)
        item_id = read_id(record["id"], "objects", index, "id")
        encoding = read_id(record["encoding"], "object", item_id, "encoding")
        return Resource(item_id, encoding, *read_span(record, item_id))
    if kind != "tensor":
        raise ArtifactError(
            "unknown kind", where=f"objects {index}", got=kind, want="tensor or resource"
        )
    check_members(record, "objects", index, required=_TENSOR, optional=_TENSOR_OPTIONAL)
    item_id = read_id(record["id"], "objects", index, "id")
    shape = read_shape(record["shape"], "object", item_id, "shape")
    return Tensor(
        item_id,
        shape,
        read_id(record["format"], "object", item_id, "format"),
        read_id(record["layout"], "object", item_id, "layout"),
        *read_span(record, item_id),
        read_divisors(record, item_id, shape),
    )
