"""Directory records to JSON, in the member order of the container's own writer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import (
    Binding,
    Component,
    FileEntry,
    Identity,
    StoredObject,
    Tensor,
    Use,
)


def object_json(item: StoredObject) -> dict[str, Any]:
    """Return a version 3 object record; `kind` comes last."""
    span = {"offset": item.offset, "bytes": item.bytes, "kind": item.kind}
    if not isinstance(item, Tensor):
        return {"id": item.id, "encoding": item.encoding, **span}
    record = {
        "id": item.id,
        "shape": list(item.shape),
        "format": item.format,
        "layout": item.layout,
        **span,
    }
    return record if item.divisors == 1 else {**record, "divisors": item.divisors}


def legacy_object_json(item: StoredObject) -> dict[str, Any]:
    """Return a version 1 or 2 object record under the names of those versions."""
    span = {"offset": item.offset, "bytes": item.bytes}
    head = {"name": item.id, "kind": item.kind}
    if not isinstance(item, Tensor):
        return {**head, "encoding": nf.LEGACY_RAW_ENCODING, **span}
    return {
        **head,
        "shape": list(item.shape),
        "format": nf.legacy_format(item.format),
        "layout": nf.legacy_layout(item.layout),
        **span,
    }


def legacy_directory_json(identity: Identity, objects: Iterable[StoredObject]) -> dict[str, Any]:
    """Return the root of a version 2 directory."""
    return {
        "identity": {"model_id": identity.model_id, "weights_id": identity.weights_id},
        "objects": [legacy_object_json(item) for item in objects],
    }


def binding_json(binding: Binding) -> dict[str, Any]:
    """Return a binding: the whole object, or its parts."""
    if binding.whole:
        return {"object": binding.parts[0].object}
    parts = [{"object": part.object, "range": [part.begin, part.end]} for part in binding.parts]
    return {"parts": parts}


def use_json(use: Use) -> dict[str, Any]:
    """Return a use; members that say nothing are left out."""
    record: dict[str, Any] = {"parameter": use.parameter, "input": use.input}
    if use.activation_policy is not None:
        record["activation_policy"] = use.activation_policy
    if use.auxiliaries:
        record["auxiliaries"] = {
            role: binding_json(binding) for role, binding in use.auxiliaries.items()
        }
    return record


def component_json(component: Component) -> dict[str, Any]:
    """Return a component; members that say nothing are left out."""
    record: dict[str, Any] = {"config": dict(component.config)}
    if component.target is not None:
        record["target"] = component.target
    if component.resources:
        record["resources"] = dict(component.resources)
    if component.proposal is not None:
        proposal: dict[str, Any] = {"domain": component.proposal.domain}
        if component.proposal.rows is not None:
            proposal["rows"] = component.proposal.rows
        record["proposal"] = proposal
    return record


def directory_json(
    components: Iterable[Component],
    objects: Iterable[StoredObject],
    bindings: Mapping[str, Binding],
    uses: Iterable[Use],
    metadata: Mapping[str, Any],
    provenance: Mapping[str, Any],
    files: Iterable[FileEntry],
) -> dict[str, Any]:
    """Return the root of a version 3 directory; `files` comes last."""
    root: dict[str, Any] = {
        "components": {item.name: component_json(item) for item in components},
        "objects": [object_json(item) for item in objects],
        "bindings": {name: binding_json(binding) for name, binding in bindings.items()},
        "uses": [use_json(use) for use in uses],
    }
    if metadata:
        root["metadata"] = dict(metadata)
    if provenance:
        root["provenance"] = dict(provenance)
    root["files"] = [{"path": item.path, "payload_bytes": item.payload_bytes} for item in files]
    return root
