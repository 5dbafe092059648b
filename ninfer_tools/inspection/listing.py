"""Listings of stored objects, logical parameters and stored files."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from ninfer_formats.directory import Binding, Part, StoredObject, Tensor
from ninfer_formats.errors import printable
from ninfer_formats.inventories.published import PINNED_RESOURCES
from ninfer_formats.ownership import UNREFERENCED, own_objects
from ninfer_formats.reader import Artifact
from ninfer_tools.console import format_table
from ninfer_tools.inspection.overview import list_resources
from ninfer_tools.inspection.section import Section

_SHORT_DIGEST = 16


def list_objects(artifact: Artifact, glob: str) -> Section:
    """Return the stored objects whose id matches, in file order."""
    owners = own_objects(artifact)
    found = [
        _object_record(item, owners[item.id])
        for item in artifact.objects.values()
        if fnmatchcase(item.id, glob)
    ]
    rows = [
        (
            item["id"],
            _shape(item["shape"]),
            item["format"] or item["encoding"],
            item["layout"] or "",
            item["offset"],
            item["bytes"],
            item["group"] or "-",
        )
        for item in found
    ]
    return _listing("objects", found, rows, f"no object matches {glob}")


def _object_record(item: StoredObject, group: str) -> dict[str, Any]:
    tensor = item if isinstance(item, Tensor) else None
    return {
        "id": item.id,
        "kind": item.kind,
        "shape": list(tensor.shape) if tensor else None,
        "format": tensor.format if tensor else None,
        "layout": tensor.layout if tensor else None,
        "encoding": None if isinstance(item, Tensor) else item.encoding,
        "offset": item.offset,
        "bytes": item.bytes,
        "group": None if group == UNREFERENCED else group,
    }


def list_parameters(artifact: Artifact, glob: str) -> Section:
    """Return the parameters whose name matches, with shape, formats and parts."""
    found = [
        _parameter_record(artifact, name, artifact.bindings[name])
        for name in artifact.bindings
        if fnmatchcase(name, glob)
    ]
    rows = [
        (
            item["name"],
            _shape(item["shape"]),
            "+".join(item["formats"]),
            ", ".join(_part_text(artifact, part) for part in item["parts"]),
        )
        for item in found
    ]
    unnamed = artifact.identity is not None and not artifact.bindings
    empty = (
        f"identity {artifact.identity} is not registered: its parameters are not known"
        if unnamed
        else f"no parameter matches {glob}"
    )
    return _listing("parameters", found, rows, empty)


def _parameter_record(artifact: Artifact, name: str, binding: Binding) -> dict[str, Any]:
    parameter = artifact.parameter(name)
    formats = dict.fromkeys(part.tensor.format for part in parameter.parts)
    return {
        "name": name,
        "shape": list(parameter.shape),
        "formats": list(formats),
        "parts": [_part_record(part) for part in binding.parts],
    }


def _part_record(part: Part) -> dict[str, Any]:
    return {"object": part.object, "begin": part.begin, "end": part.end}


def _part_text(artifact: Artifact, part: dict[str, Any]) -> str:
    item = artifact.objects[part["object"]]
    count = math.prod(item.shape) if isinstance(item, Tensor) else 0
    if (part["begin"], part["end"]) == (0, count):
        return part["object"]
    return f"{part['object']}[{part['begin']}:{part['end']}]"


def list_stored_files(artifact: Artifact, stored: bool) -> Section:
    """Return the resources with their SHA-256, and whose official file each equals."""
    found = []
    for component, role, item in list_resources(artifact):
        digest = hashlib.sha256(artifact.raw_payload(item.id).data).hexdigest() if stored else None
        record = {"component": component, "role": role, "id": item.id, "bytes": item.bytes}
        found.append(record | {"sha256": digest, "official": _official(role, digest)})
    rows = [
        (
            item["component"] or "-",
            item["role"],
            item["bytes"],
            (item["sha256"] or "")[:_SHORT_DIGEST],
            f"official {', '.join(item['official'])}" if item["official"] else "",
        )
        for item in found
    ]
    return _listing("resources", found, rows, "no resources")


def _official(role: str, digest: str | None) -> list[str]:
    return [name for name, pins in PINNED_RESOURCES.items() if digest and pins.get(role) == digest]


def _shape(shape: Iterable[int] | None) -> str:
    return "" if shape is None else str(list(shape))


def _listing(name: str, found: list[Any], rows: list[Any], empty: str) -> Section:
    text = format_table(rows, indent="") if rows else printable(empty)
    return Section(name, found, text, code=0 if rows else 1)
