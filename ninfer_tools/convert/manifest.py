"""`artifact-manifest.json` beside a converted artifact: what `ninfer pull` verifies.

Rules V-145, V-146 and V-170.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ninfer_formats.directory import Resource, Tensor
from ninfer_formats.inventories.component_configs import geometry_from_components
from ninfer_formats.output_target import refuse_occupied, resolve_target
from ninfer_formats.reader import Artifact, list_parts, open_artifact
from ninfer_tools.convert.progress import show_conversion
from ninfer_tools.convert.versions import find_versions
from ninfer_tools.convert.whole_file import hash_file
from ninfer_tools.hub.digests import MANIFEST

SCHEMA = "ninfer.artifact-manifest"


def manifest_path(output: Path) -> Path:
    return output.with_name(MANIFEST)


def refuse_taken_manifest(output: Path, force: bool) -> None:
    """Raise UsageError when there is a manifest already and it may not be replaced."""
    path = manifest_path(output)
    refuse_occupied(resolve_target(path, {path.name: 0}, force=force))


def tell_stale_manifest(output: Path) -> None:
    """Say so when a manifest is there that describes the file which was replaced."""
    path = manifest_path(output)
    try:
        named = json.loads(path.read_text(encoding="utf-8"))["artifact"]["filename"]
    except (OSError, ValueError, TypeError, KeyError):
        return
    if named == output.name:
        print(f"note: {path} describes the replaced file; --manifest renews it", file=sys.stderr)


def encode_manifest(written: Path, report: Mapping[str, Any]) -> bytes:
    """Hash the files of a complete artifact at `written`; return the bytes of its manifest.

    `report` is the content of `FILE.conversion.json`. Raises OSError for a file that cannot be
    read.
    """
    record = describe_artifact(open_artifact(written), _hash_files(written), report)
    return (json.dumps(record, indent=1) + "\n").encode()


def describe_artifact(
    artifact: Artifact, files: list[dict[str, Any]], report: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the manifest; `files` has filename, bytes and sha256, the entry first."""
    return {
        "schema": SCHEMA,
        "schema_version": 1 if artifact.version < 3 else 2,
        "artifact": {
            **files[0],
            "container_version": artifact.version,
            **_identify(artifact),
            "files": files,
        },
        "source": {name: _describe_source(item) for name, item in report["sources"].items()},
        "conversion": {
            "converter": "ninfer",
            "converter_version": find_versions("ninfer").get("ninfer"),
            "recipe_id": report["profile"],
            "plan_sha256": report["plan_sha256"],
        },
        "inventory": count_inventory(artifact),
    }


def count_inventory(artifact: Artifact) -> dict[str, Any]:
    """Return counts of objects by kind, format, layout and encoding, and their bytes."""
    tensors = [item for item in artifact.objects.values() if isinstance(item, Tensor)]
    resources = [item for item in artifact.objects.values() if isinstance(item, Resource)]
    tensor_bytes, resource_bytes = (sum(i.bytes for i in kind) for kind in (tensors, resources))
    span, filled = artifact.payload.bytes, tensor_bytes + resource_bytes
    counts: dict[str, Any] = {
        "objects": len(artifact.objects),
        "tensors": len(tensors),
        "resources": len(resources),
    }
    if artifact.version == 3:
        counts |= {"bindings": len(artifact.bindings), "uses": len(artifact.uses)}
    return counts | {
        "formats": dict(Counter(item.format for item in tensors)),
        "layouts": dict(Counter(item.layout for item in tensors)),
        "encodings": dict(Counter(item.encoding for item in resources)),
        "bytes": {
            "tensor": tensor_bytes,
            "resource": resource_bytes,
            "object": filled,
            "payload_span": span,
            "alignment": span - filled,
        },
    }


def _identify(artifact: Artifact) -> dict[str, Any]:
    identity = artifact.identity
    if identity is not None:
        return {"model_id": identity.model_id, "weights_id": identity.weights_id}
    configs = {name: item.config for name, item in artifact.components.items()}
    moe = geometry_from_components(configs).text.is_moe
    return {
        "artifact_id": artifact.prefix.artifact_id.hex() if artifact.prefix.artifact_id else None,
        "architecture": "qwen3_5_moe" if moe else "qwen3_5",
        "name": artifact.metadata.get("name"),
        "components": list(artifact.components),
    }


def _describe_source(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return where a source is found by anybody: a folder of this machine by its name alone."""
    files = {name: known for name, known in item["files"].items() if "sha256" in known}
    if "repository" in item:
        found = {"repo_id": item["repository"], "revision": item["commit"]}
    else:
        found = {"folder": Path(item["folder"]).name}
    return {**found, "files": files}


def _hash_files(output: Path) -> list[dict[str, Any]]:
    paths = [
        output,
        *(output.with_name(name) for name in list_parts(output) if name != output.name),
    ]
    total = sum(path.stat().st_size for path in paths)
    files = []
    with show_conversion(total) as (advance, announce):
        for path in paths:
            announce(f"hashing {path.name}")
            files.append(
                {
                    "filename": path.name,
                    "bytes": path.stat().st_size,
                    "sha256": hash_file(path, advance),
                }
            )
    return files
