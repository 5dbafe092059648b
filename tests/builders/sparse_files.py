"""Full-size artifacts with the registered directories: sparse, so they cost no disk.

Every object carries 32 marker bytes at its start and end, so that moved, swapped or lost payloads
are seen; everything between is a hole.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from builders.artifact_bytes import compact
from ninfer_formats.directory import Binding, Component, Part, Proposal, StoredObject
from ninfer_formats.directory_json import legacy_object_json
from ninfer_formats.inventories.component_configs import component_configs
from ninfer_formats.inventories.legacy_tables import FRONTEND_RESOURCES
from ninfer_formats.inventories.plan import plan_inventory
from ninfer_formats.inventories.published import (
    LEGACY_RESOURCE_BYTES,
    QWEN3_6_RESOURCE_BYTES,
)
from ninfer_formats.inventories.registered import registered_inventory
from ninfer_formats.write_plan import (
    DirectoryDraft,
    make_resource,
    make_tensor,
    place_objects,
    plan_v3,
)

BASE = ("text", "proposal", "mtp", "vision")
# (model_id, weights_id, form, groups): every version 2 file that was ever registered.
REGISTERED = {
    "3.8 int": ("qwen3.8-27b", "groupwise-int", "", BASE),
    "3.8 int dflash2": ("qwen3.8-27b", "groupwise-int", "", None),
    "3.8 nvfp4": ("qwen3.8-27b", "nvfp4", "", BASE),
    "3.8 nvfp4 dflash2": ("qwen3.8-27b", "nvfp4", "", None),
    "3.8 nvfp4 community": ("qwen3.8-27b", "nvfp4", "w8-nvfp4", BASE),
    "3.6 int": ("qwen3.6-27b", "groupwise-int", "", None),
    "3.6 nvfp4": ("qwen3.6-27b", "nvfp4", "", None),
    "35b int": ("qwen3.6-35b-a3b", "groupwise-int", "", BASE),
    "35b int dflash": ("qwen3.6-35b-a3b", "groupwise-int", "", None),
}


def resource_sizes(model_id: str) -> tuple[int, ...]:
    """Sizes of the six frontend files; for 3.8 the first two are a stand-in split of their sum."""
    if "3.8" not in model_id:
        return QWEN3_6_RESOURCE_BYTES
    rest = (16_718, 7_756, 202, 390, 385)
    return (LEGACY_RESOURCE_BYTES["qwen3.8"] - sum(rest), *rest)


def legacy_objects(key: str) -> tuple[StoredObject, ...]:
    """Placed objects of a registered version 2 file."""
    model_id, weights_id, form, groups = REGISTERED[key]
    inventory = registered_inventory(model_id, weights_id, form)
    sizes = zip(inventory.resources, resource_sizes(model_id), strict=True)
    resources = [make_resource(name, size) for name, size in sizes]
    tensors = [make_tensor(t.name, t.shape, t.format) for t in inventory.select(groups)]
    return place_objects([*resources, *tensors])


def save_legacy(path: Path, key: str, version: int = 2, without: tuple[str, ...] = ()) -> Path:
    """Write a sparse version 1 or 2 file with marked objects."""
    model_id, weights_id, _, _ = REGISTERED[key]
    objects = [item for item in legacy_objects(key) if item.id not in without]
    records = [legacy_object_json(item) for item in objects]
    root = (
        {"model_id": model_id, "objects": records}
        if version == 1
        else {"identity": {"model_id": model_id, "weights_id": weights_id}, "objects": records}
    )
    text = compact(root)
    start = -(-(16 + len(text)) // 4096) * 4096
    with path.open("wb") as file:
        file.write(b"NINFER\0" + bytes([version]) + len(text).to_bytes(8, "little") + text)
        file.truncate(start + objects[-1].end)
        mark_objects(file.fileno(), objects, start)
    return path


def mark_objects(descriptor: int, objects: list[StoredObject], start: int) -> None:
    """Write the markers of objects whose payload begins at `start` of a file."""
    for item in objects:
        mark = marker(item.id)[: item.bytes]
        os.pwrite(descriptor, mark, start + item.offset)
        if item.bytes > 64:
            os.pwrite(descriptor, mark[::-1], start + item.end - 32)


def marker(name: str) -> bytes:
    # Activation divisors are compared as numbers: theirs is 2.0 for all.
    if name.endswith("input_scale_divisor") or name.startswith("auxiliary/"):
        return b"\0\0\0\x40"
    return hashlib.sha256(name.encode()).digest()


def data_runs(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, bytes) of every 4096-byte page that is not all zero."""
    with path.open("rb") as file:
        descriptor, end = file.fileno(), os.fstat(file.fileno()).st_size
        at = 0
        while at < end:
            try:
                at = os.lseek(descriptor, at, os.SEEK_DATA)
            except OSError:
                return
            stop = os.lseek(descriptor, at, os.SEEK_HOLE)
            for page in range(at // 4096 * 4096, stop, 4096):
                data = os.pread(descriptor, 4096, page)
                if any(data):
                    yield page, data
            at = stop


def fingerprint(path: Path) -> tuple[int, str]:
    """Size and digest of all data of a sparse file: equal exactly for byte-identical files."""
    digest = hashlib.sha256()
    for offset, data in data_runs(path):
        digest.update(offset.to_bytes(8, "little") + data)
    return path.stat().st_size, digest.hexdigest()


def converted_draft(
    key: str, separate: str | None = None, divisor_step: int = 0, **changes: object
) -> tuple[DirectoryDraft, dict[str, bytes]]:
    """Return a version 3 directory as a converter makes it, and the bytes of its scalars.

    `separate` stores every parameter whose name starts so in an object of its own;
    `divisor_step` makes the activation divisors of uses differ.
    """
    model_id, weights_id, form, groups = REGISTERED[key]
    inventory = registered_inventory(model_id, weights_id, form)
    drafter = inventory.geometry.drafter if groups is None else None
    geometry = replace(inventory.geometry, drafter=drafter)
    plan = plan_inventory(geometry, inventory.profile, geometry.components, 131072)
    sizes = dict(zip(inventory.resources, resource_sizes(model_id), strict=True))
    resources = [
        make_resource(f"resource/{owner}/{role}", sizes[name])
        for name, role, owner in FRONTEND_RESOURCES
    ]
    tensors, bindings = [], dict(plan.bindings)
    for parent in plan.parents:
        names = [name for name, _, _ in parent.ranges]
        fused = len(names) > 1 and all(name.startswith(separate or "\0") for name in names)
        if not fused:
            tensors.append(make_tensor(parent.id, parent.shape, parent.format))
            continue
        for name, begin, end in parent.ranges:
            shape = ((end - begin) // parent.shape[-1], *parent.shape[1:])
            tensors.append(make_tensor(f"own/{name}", shape, parent.format))
            bindings[name] = Binding((Part(f"own/{name}", 0, end - begin),), True)
    scalars = {
        item.id: struct.pack("<f", 2.0 + index * divisor_step)
        for index, item in enumerate(plan.auxiliaries)
    }
    tensors += [make_tensor(item.id, (), item.format) for item in plan.auxiliaries]
    components = []
    for name, config in component_configs(geometry).items():
        roles = {role: f"resource/{name}/{role}" for _, role, o in FRONTEND_RESOURCES if o == name}
        proposal = Proposal("indexed", 131072) if name == "text" else None
        target = None if name == "text" else "text"
        components.append(Component(name, config, target, roles, proposal))
    draft = DirectoryDraft(
        tuple(components),
        place_objects([*resources, *tensors]),
        bindings,
        plan.uses,
        {"name": model_id},
        {"converter": "test"},
    )
    return replace(draft, **changes), scalars


def save_converted(path: Path, key: str, **options: object) -> Path:
    """Write a sparse version 3 file of `converted_draft`, with marked objects."""
    draft, scalars = converted_draft(key, **options)  # type: ignore[arg-type]
    (file,) = plan_v3(draft, path.name).files
    with path.open("wb") as out:
        out.write(file.header)
        out.truncate(file.bytes)
        mark_objects(out.fileno(), list(draft.objects), file.start)
        for item in draft.objects:
            if item.id in scalars:
                os.pwrite(out.fileno(), scalars[item.id], file.start + item.offset)
    return path
