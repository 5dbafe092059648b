"""The overview of an artifact as one record: what it is, what it holds, what can load it."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from typing import Any

from ninfer_formats.directory import Resource, Tensor
from ninfer_formats.group_state import GroupState
from ninfer_formats.reader import Artifact
from ninfer_tools.inspection.files import list_files
from ninfer_tools.inspection.model import architecture_of, describe_model, name_profile
from ninfer_tools.inspection.recognition import recognise

LARGEST = 5


def describe(artifact: Artifact, stored: bool = True) -> dict[str, Any]:
    """Return everything the directory says, without reading weights.

    `stored` is False for a synthetic artifact, which has a directory but no file behind it.
    """
    from ninfer_tools.compatibility.engines import judge_briefly

    examination = artifact.examination
    digest = directory_sha256(artifact) if stored else None
    files = list_files(artifact)
    return {
        "path": str(artifact.path),
        "synthetic": not stored,
        "version": artifact.version,
        "identity": _identity(artifact),
        "name": artifact.metadata.get("name"),
        "artifact_id": artifact.prefix.artifact_id.hex() if artifact.prefix.artifact_id else None,
        "architecture": architecture_of(artifact),
        "model": describe_model(examination.geometry),
        "profile": name_profile(artifact, examination),
        "directory_bytes": artifact.prefix.json_bytes,
        "directory_sha256": digest,
        "files": [item.as_record() for item in files],
        "bytes": sum(item.bytes or 0 for item in files),
        "expected_bytes": sum(item.expected_bytes for item in files),
        "recognised": recognise(artifact, digest),
        "groups": [_group_record(state) for state in examination.groups],
        "objects": len(artifact.objects),
        "parameters": len(artifact.bindings),
        "formats": _formats(artifact),
        "largest": _largest(artifact),
        "resources": _resources(artifact),
        "policies": _policies(artifact),
        "provenance": dict(artifact.provenance),
        "engines": [verdict.as_record() for verdict in judge_briefly(artifact)],
        "problems": [str(problem) for problem in examination.problems],
        "notices": examination.notices,
        "payload_checked": False,
    }


def directory_sha256(artifact: Artifact) -> str:
    """Return the SHA-256 of the JSON directory: it tells files of one name apart at once."""
    return hashlib.sha256(artifact.raw_directory()).hexdigest()


def _group_record(state: GroupState) -> dict[str, Any]:
    return {
        "group": state.group,
        "state": state.state,
        "objects": state.objects,
        "bytes": state.bytes,
        "missing": list(state.missing),
        "faults": [str(fault) for fault in state.faults],
        "reason": state.reason,
    }


def _identity(artifact: Artifact) -> dict[str, Any] | None:
    found = artifact.identity
    return found and {"model_id": found.model_id, "weights_id": found.weights_id}


def _formats(artifact: Artifact) -> list[dict[str, Any]]:
    objects: Counter[str] = Counter()
    values: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for item in artifact.tensors():
        objects[item.format] += 1
        values[item.format] += math.prod(item.shape)
        sizes[item.format] += item.bytes
    return [
        {"format": name, "objects": count, "values": values[name], "bytes": sizes[name]}
        for name, count in sorted(objects.items(), key=lambda pair: -sizes[pair[0]])
    ]


def _largest(artifact: Artifact) -> list[dict[str, Any]]:
    found = sorted(artifact.tensors(), key=lambda item: -item.bytes)[:LARGEST]
    return [_tensor_record(item) for item in found]


def _tensor_record(item: Tensor) -> dict[str, Any]:
    return {
        "id": item.id,
        "shape": list(item.shape),
        "format": item.format,
        "layout": item.layout,
        "bytes": item.bytes,
    }


def _resources(artifact: Artifact) -> list[dict[str, Any]]:
    return [
        {"component": component, "role": role, "id": item.id, "bytes": item.bytes}
        for component, role, item in list_resources(artifact)
    ]


def list_resources(artifact: Artifact) -> list[tuple[str | None, str, Resource]]:
    """Return (component, role, resource); what no component refers to comes last, its role being
    the last part of its id."""
    named = [(name, role, item) for (name, role), item in artifact.resources.items()]
    known = {item.id for _, _, item in named}
    loose = [
        (None, item.id.rpartition("/")[2], item)
        for item in artifact.objects.values()
        if isinstance(item, Resource) and item.id not in known
    ]
    return [*named, *loose]


def _policies(artifact: Artifact) -> dict[str, int]:
    return dict(Counter(use.activation_policy or "none" for use in artifact.uses))
