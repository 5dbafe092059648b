"""Components and open objects of a version 3 directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ninfer_formats.directory import Component, Proposal, Resource, StoredObject
from ninfer_formats.errors import ArtifactError
from ninfer_formats.object_records import check_members, read_id, read_integer
from ninfer_formats.strict_json import check_depth

_CONFIG = frozenset({"config"})
_COMPONENT_OPTIONAL = frozenset({"target", "resources", "proposal"})


def read_components(value: Any, objects: Mapping[str, StoredObject]) -> dict[str, Component]:
    if type(value) is not dict or "text" not in value:
        raise ArtifactError("must be an object with the member `text`", where="components")
    for name in value:
        read_id(name, "components")
    return {name: _read_component(name, record, value, objects) for name, record in value.items()}


def _read_component(
    name: str, record: Any, components: Mapping[str, Any], objects: Mapping[str, StoredObject]
) -> Component:
    where = f"component {name}"
    check_members(record, where, required=_CONFIG, optional=_COMPONENT_OPTIONAL)
    target = record.get("target")
    if "target" in record and (type(target) is not str or target not in components):
        raise ArtifactError("target is not a component", where=where, got=target)
    return Component(
        name=name,
        config=read_open_object(record["config"], f"{where} config"),
        target=target,
        resources=_read_roles(record.get("resources", {}), where, objects),
        proposal=_read_proposal(record["proposal"], name) if "proposal" in record else None,
    )


def _read_roles(value: Any, where: str, objects: Mapping[str, StoredObject]) -> dict[str, str]:
    if type(value) is not dict:
        raise ArtifactError("not an object", where=f"{where} resources")
    for role, target in value.items():
        read_id(role, f"{where} resources")
        if type(target) is not str or not isinstance(objects.get(target), Resource):
            raise ArtifactError("not a resource object", where=f"{where} {role}", got=target)
    return value


def _read_proposal(value: Any, component: str) -> Proposal:
    where = f"component {component} proposal"
    if component != "text":
        raise ArtifactError("only the text component has a proposal", where=where)
    check_members(value, where, required=frozenset({"domain"}), optional=frozenset({"rows"}))
    domain = value["domain"]
    if domain == "full" and "rows" not in value:
        return Proposal("full")
    if domain == "indexed" and "rows" in value:
        return Proposal("indexed", read_integer(value["rows"], where, "rows", least=1))
    raise ArtifactError(
        "not a legal proposal", where=where, got=value, want="`full`, or `indexed` with rows"
    )


def read_metadata(value: Any) -> Mapping[str, Any]:
    metadata = read_open_object(value, "metadata")
    if "name" in metadata:
        read_id(metadata["name"], "metadata name")
    return metadata


def read_open_object(value: Any, where: str) -> Mapping[str, Any]:
    if type(value) is not dict:
        raise ArtifactError("not an object", where=where, got=type(value).__name__)
    check_depth(value, where)
    return value
