"""The version 1 and 2 directory: an identity and a flat list of named objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import Identity, Resource, StoredObject, Tensor
from ninfer_formats.errors import ArtifactError
from ninfer_formats.object_records import (
    check_members,
    check_order,
    find_object_problem,
    index_objects,
    read_id,
    read_plain_tensor,
    read_shape,
    read_span,
)

_TENSOR = frozenset({"name", "kind", "shape", "format", "layout", "offset", "bytes"})
_RESOURCE = frozenset({"name", "kind", "encoding", "offset", "bytes"})


@dataclass(frozen=True)
class LegacyDirectory:
    """A checked version 1 or 2 directory."""

    identity: Identity
    objects: Mapping[str, StoredObject]
    payload_end: int


def read_directory_legacy(root: Any, version: int) -> LegacyDirectory:
    """Check a parsed directory. Objects in a known format must have the exact size; unknown
    formats and layouts stay inspectable."""
    member = "model_id" if version == 1 else "identity"
    check_members(root, "directory", required=frozenset({member, "objects"}))
    records = root["objects"]
    if type(records) is not list or not records:
        raise ArtifactError("not a nonempty array", where="objects")
    objects = [_read_object(record, index) for index, record in enumerate(records)]
    index = index_objects(objects)
    payload_end = check_order(objects, None)
    for item in objects:
        _check_object(item)
    return LegacyDirectory(_read_identity(root[member], version), index, payload_end)


def count_keys_legacy(root: Any) -> int:
    """Return the number of keys of a directory, relying on its closed records: it is exact for
    every directory that `read_directory_legacy` accepts."""
    try:
        identity = root.get("identity", ())
        return len(root) + len(identity) + sum(map(len, root["objects"]))
    except (TypeError, KeyError, AttributeError):
        return -1


def _read_identity(value: Any, version: int) -> Identity:
    if version == 1:
        return Identity(read_id(value, "model_id"))
    check_members(value, "identity", required=frozenset({"model_id", "weights_id"}))
    return Identity(
        read_id(value["model_id"], "identity model_id"),
        read_id(value["weights_id"], "identity weights_id"),
    )


def _read_object(record: Any, index: int) -> StoredObject:
    plain = read_plain_tensor(record, "name")
    if plain is not None:
        format, layout = nf.canonical_format(plain.format), nf.canonical_layout(plain.layout)
        return plain._replace(format=format, layout=layout)
    kind = record.get("kind") if type(record) is dict else None
    if kind == "resource":
        return _read_resource(record, index)
    if kind != "tensor":
        raise ArtifactError(
            "unknown kind", where=f"objects {index}", got=kind, want="tensor or resource"
        )
    check_members(record, "objects", index, required=_TENSOR)
    name = read_id(record["name"], "objects", index, "name")
    return Tensor(
        name,
        read_shape(record["shape"], "object", name, "shape"),
        nf.canonical_format(read_id(record["format"], "object", name, "format")),
        nf.canonical_layout(read_id(record["layout"], "object", name, "layout")),
        *read_span(record, name),
    )


def _read_resource(record: Any, index: int) -> Resource:
    check_members(record, "objects", index, required=_RESOURCE)
    name = read_id(record["name"], "objects", index, "name")
    encoding = read_id(record["encoding"], "object", name, "encoding")
    if encoding != nf.LEGACY_RAW_ENCODING:
        raise ArtifactError(
            "unknown resource encoding",
            where=f"object {name}",
            got=encoding,
            want=nf.LEGACY_RAW_ENCODING,
        )
    return Resource(name, nf.RAW_ENCODING, *read_span(record, name))


def _check_object(item: StoredObject) -> None:
    if isinstance(item, Tensor) and (
        item.format not in nf.FORMATS or item.layout not in nf.LAYOUTS
    ):
        return
    problem = find_object_problem(item)
    if problem is not None:
        raise problem
