"""Payload checks of stored files: text, and JSON where the name says so."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ninfer_formats.inventories.geometry import VisionGeometry
from ninfer_formats.reader import Artifact
from ninfer_tools.inspection.fault import PayloadFault
from ninfer_tools.inspection.overview import list_resources

_PREPROCESSORS = ("preprocessor_config.json", "video_preprocessor_config.json")
# Key of a preprocessor file -> the size of the vision tower it must agree with.
_PATCH_KEYS = {
    "patch_size": "patch_size",
    "temporal_patch_size": "temporal_patch_size",
    "merge_size": "spatial_merge_size",
}


def check_resources(
    artifact: Artifact, vision: VisionGeometry | None, usable: frozenset[str]
) -> Iterator[PayloadFault]:
    """Yield what is wrong with every stored file that can be read."""
    for component, role, item in list_resources(artifact):
        if item.id in usable:
            data = artifact.raw_payload(item.id).tobytes()
            for message in find_faults(role, data, vision if component == "vision" else None):
                yield PayloadFault("error", f"object {item.id}", "resource", message, item.offset)


def find_faults(role: str, data: bytes, vision: VisionGeometry | None) -> Iterator[str]:
    """Yield what is wrong with the bytes of one stored file."""
    if b"\0" in data:
        yield f"file holds NUL bytes (first at {data.index(0)}; {data.count(0)} in all)"
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        yield f"file is not UTF-8 at byte {error.start}"
        return
    if not text.strip():
        yield "file is blank"
    elif role.endswith(".json"):
        yield from _find_json_faults(role, text, vision)


def _find_json_faults(role: str, text: str, vision: VisionGeometry | None) -> Iterator[str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        yield f"file is not JSON: {error}"
        return
    if not isinstance(value, dict):
        yield f"file is not a JSON object but {type(value).__name__}"
    elif vision is not None and role in _PREPROCESSORS:
        yield from _find_patch_faults(value, vision)


def _find_patch_faults(value: Mapping[str, Any], vision: VisionGeometry) -> Iterator[str]:
    for key, size in _PATCH_KEYS.items():
        want = getattr(vision, size)
        if value.get(key, want) != want:
            yield f"{key} is {value[key]}, the vision config says {want}"
