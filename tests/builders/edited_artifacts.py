"""Full-size sparse artifacts whose directory a test may edit before it is written.

Only the frontend files hold bytes (JSON objects and text, padded with spaces); tensors are holes,
and so is the middle of the tokenizer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from builders.artifact_bytes import entry_bytes, legacy_bytes, part_bytes
from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import Component, FileEntry, Proposal
from ninfer_formats.directory_json import directory_json, legacy_object_json
from ninfer_formats.inventories.component_configs import component_configs
from ninfer_formats.inventories.family import PROPOSAL_ROWS, family_geometry
from ninfer_formats.inventories.geometry import with_layers
from ninfer_formats.inventories.legacy_tables import FRONTEND_RESOURCES
from ninfer_formats.inventories.plan import plan_inventory
from ninfer_formats.inventories.profiles import build_profile
from ninfer_formats.inventories.registered import registered_inventory
from ninfer_formats.layouts.geometry import align_up, encoded_size
from ninfer_formats.write_plan import make_resource, make_tensor, place_objects

Edit = Callable[[dict[str, Any]], None]
BASE = ("text", "proposal", "mtp", "vision")
EVERYTHING = ("text", "vision", "mtp", "dflash2")
_TOTALS = {"qwen3.6": 12_833_441, "qwen3.8": 12_837_177}


def resource_sizes(model_id: str) -> list[int]:
    """Return six sizes with the published total of the release."""
    rest = [16_718, 7_764, 202, 390, 385]
    return [_TOTALS[model_id.partition("-")[0]] - sum(rest), *rest]


def save_legacy(
    path: Path,
    model_id: str,
    weights_id: str = "groupwise-int",
    *,
    groups: tuple[str, ...] | None = BASE,
    form: str = "",
    version: int = 2,
    edit: Edit | None = None,
) -> Path:
    """Write a version 1 or 2 file of a registered inventory; `edit` gets the directory."""
    inventory = registered_inventory(model_id, weights_id, form)
    sizes = zip(inventory.resources, resource_sizes(model_id), strict=True)
    resources = [make_resource(name, size) for name, size in sizes]
    tensors = [make_tensor(t.name, t.shape, t.format) for t in inventory.select(groups)]
    records = [legacy_object_json(item) for item in place_objects([*resources, *tensors])]
    identity = {"model_id": model_id, "weights_id": weights_id}
    root = {"model_id": model_id} if version == 1 else {"identity": identity}
    root = {**root, "objects": records}
    if edit is not None:
        edit(root)
    objects = root["objects"]
    end = max(item["offset"] + item["bytes"] for item in objects)
    _save_sparse(path, legacy_bytes(version, root, b""), end, objects)
    return path


def v3_root(
    model: str = "qwen3.8-27b",
    profile: str = "groupwise-int",
    components: tuple[str, ...] = EVERYTHING,
    rows: int | None = PROPOSAL_ROWS,
    layers: int | None = None,
    tied: bool = False,
) -> dict[str, Any]:
    """Return the directory of a converted version 3 artifact."""
    geometry = family_geometry(model)
    if layers is not None:
        geometry = with_layers(geometry, layers)
    if tied:
        geometry = replace(geometry, text=replace(geometry.text, tie_word_embeddings=True))
    plan = plan_inventory(geometry, build_profile(profile, geometry, model), components, rows)
    sizes = dict(zip(FRONTEND_RESOURCES, resource_sizes("qwen3.8-27b"), strict=True))
    chosen = {key: size for key, size in sizes.items() if key[2] in components}
    resources = [make_resource(f"resource/{o}/{r}", size) for (_, r, o), size in chosen.items()]
    tensors = [make_tensor(t.id, t.shape, t.format) for t in (*plan.parents, *plan.auxiliaries)]
    objects = place_objects([*resources, *tensors])
    configs = component_configs(geometry)
    return directory_json(
        [_component(name, configs[name], rows) for name in components],
        objects,
        plan.bindings,
        plan.uses,
        {"name": model},
        {"converter": "ninfer-v3"},
        [FileEntry(None, objects[-1].end)],
    )


def save_v3(path: Path, root: dict[str, Any]) -> Path:
    """Write a version 3 artifact of one sparse file."""
    _save_sparse(path, entry_bytes(root, b""), root["files"][0]["payload_bytes"], root["objects"])
    return path


def save_v3_parts(path: Path, root: dict[str, Any], part_payload: int) -> list[Path]:
    """Write a version 3 artifact as an entry and one sparse part; return both paths."""
    total = root["files"][0]["payload_bytes"]
    part = path.with_name(f"{path.name}.part-0001")
    root["files"] = [
        {"path": None, "payload_bytes": total - part_payload},
        {"path": part.name, "payload_bytes": part_payload},
    ]
    save_v3(path, root)
    part.write_bytes(part_bytes(1, b""))
    os.truncate(part, 4096 + part_payload)
    return [path, part]


def lay_again(root: dict[str, Any]) -> None:
    """Give every object of an edited directory its size and a legal place."""
    end = 0
    for item in root["objects"]:
        if item["kind"] == "tensor":
            item["bytes"] = _size_of(item)
            end = align_up(end, 256)
        item["offset"] = end
        end += item["bytes"]
    if "files" in root:
        root["files"][0]["payload_bytes"] = end


def find_object(root: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the record of an object in any container version."""
    return next(item for item in root["objects"] if name in (item.get("name"), item.get("id")))


def drop_objects(root: dict[str, Any], *names: str) -> None:
    """Take objects out of a version 1 or 2 directory; their bytes become gaps."""
    root["objects"] = [item for item in root["objects"] if item["name"] not in names]


def _size_of(item: dict[str, Any]) -> int:
    format = nf.canonical_format(item["format"]).removesuffix(" (a version 3 name)")
    layout = nf.canonical_layout(item["layout"]).removesuffix(" (a version 3 name)")
    if format not in nf.FORMATS or layout not in nf.LAYOUTS:
        return item["bytes"]
    return encoded_size(format, layout, tuple(item["shape"]), item.get("divisors", 1))


def _component(name: str, config: dict[str, Any], rows: int | None) -> Component:
    roles = {r: f"resource/{o}/{r}" for _, r, o in FRONTEND_RESOURCES if o == name}
    if name != "text":
        return Component(name, config, "text", roles)
    return Component(name, config, None, roles, Proposal("indexed", rows) if rows else None)


def _save_sparse(path: Path, head: bytes, payload_bytes: int, objects: list[Any]) -> None:
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + payload_bytes)
        for item in objects:
            if item["kind"] == "resource":
                _write_text(file.fileno(), item, len(head) + item["offset"])


def _write_text(descriptor: int, item: dict[str, Any], at: int) -> None:
    name, size = str(item.get("name") or item.get("id")), item["bytes"]
    if not name.endswith(".json"):
        os.pwrite(descriptor, b"{{ messages }}".ljust(size), at)
    elif size < 1 << 20:
        os.pwrite(descriptor, b"{" + b" " * (size - 2) + b"}", at)
    else:  # nothing parses a tokenizer here: its middle is a hole
        os.pwrite(descriptor, b"{", at)
        os.pwrite(descriptor, b"}", at + size - 1)
