"""Directories laid out from an inventory alone, with stand-in resources."""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from ninfer_formats import numeric_formats as nf
from ninfer_formats.inventories.component_configs import component_configs
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.inventories.legacy import LegacyInventory
from ninfer_formats.inventories.legacy_bindings import bindings_of, components_of, uses_of
from ninfer_formats.inventories.legacy_tables import FRONTEND_RESOURCES
from ninfer_formats.inventories.plan import InventoryPlan
from ninfer_formats.layouts.geometry import align_up

# The sizes of the qwen3.8 files are not published one by one. The template is 7,756 bytes (the
# upgraded files say so), the three small files are those of qwen3.6, and the rest of the total of
# 12,837,177 is split so that the digit counts fit.
QWEN3_8_BYTES = (12_811_444, 17_000, 7_756, 202, 390, 385)
UPGRADED_TEMPLATE_BYTES = 8_516


class Laid(NamedTuple):
    """A directory: its JSON, payload span and the size of the whole file."""

    json: bytes
    span: int
    file_bytes: int
    objects: int


def dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def lay_legacy(
    inventory: LegacyInventory,
    resource_bytes: Sequence[int],
    groups: Sequence[str] | None = None,
    version: int = 2,
) -> Laid:
    objects: list[dict[str, Any]] = []
    end = 0
    for name, size in zip(inventory.resources, resource_bytes, strict=True):
        record = {"name": name, "kind": "resource", "encoding": nf.LEGACY_RAW_ENCODING}
        objects.append({**record, "offset": end, "bytes": size})
        end += size
    for tensor in inventory.select(groups):
        offset = align_up(end, 256)
        end = offset + tensor.bytes
        record = {"name": tensor.name, "kind": "tensor", "shape": list(tensor.shape)}
        record["format"] = nf.legacy_format(tensor.format)
        record["layout"] = nf.legacy_layout(tensor.layout)
        objects.append({**record, "offset": offset, "bytes": tensor.bytes})
    identity = {"model_id": inventory.model_id, "weights_id": inventory.weights_id}
    root = {"model_id": inventory.model_id} if version == 1 else {"identity": identity}
    text = dump({**root, "objects": objects})
    return Laid(text, end, align_up(16 + len(text), 4096) + end, len(objects))


def _bindings_json(bindings: Any) -> dict[str, Any]:
    def one(binding: Any) -> dict[str, Any]:
        if binding.whole:
            return {"object": binding.parts[0].object}
        return {"parts": [{"object": p.object, "range": [p.begin, p.end]} for p in binding.parts]}

    return {name: one(binding) for name, binding in bindings.items()}


def _uses_json(uses: Any) -> list[dict[str, Any]]:
    return [
        {"parameter": u.parameter, "input": u.input, "activation_policy": u.activation_policy}
        | ({"auxiliaries": _bindings_json(u.auxiliaries)} if u.auxiliaries else {})
        for u in uses
    ]


def _file_v3(root: dict[str, Any], span: int) -> Laid:
    text = dump(root | {"files": [{"path": None, "payload_bytes": span}]})
    start = align_up(32 + len(text), 4096)
    return Laid(text, span, start + span, len(root["objects"]))


def lay_v3(
    geometry: ModelGeometry,
    plan: InventoryPlan,
    components: Sequence[str],
    resource_bytes: Sequence[int],
) -> Laid:
    """Lay out a converted file, with a stand-in provenance."""
    configs = component_configs(geometry)
    parts: dict[str, Any] = {}
    objects: list[dict[str, Any]] = []
    end = 0
    for name in components:
        own = [role for _, role, owner in FRONTEND_RESOURCES if owner == name]
        parts[name] = {"config": configs[name]} | ({"target": "text"} if name != "text" else {})
        parts[name] |= {"resources": {role: f"resource/{name}/{role}" for role in own}}
    parts["text"]["proposal"] = {"domain": "indexed", "rows": 131072}
    for (_, role, owner), size in zip(FRONTEND_RESOURCES, resource_bytes, strict=True):
        record = {"id": f"resource/{owner}/{role}", "encoding": nf.RAW_ENCODING}
        objects.append({**record, "offset": end, "bytes": size, "kind": "resource"})
        end += size
    for item in (*plan.parents, *plan.auxiliaries):
        offset = align_up(end, 256)
        end = offset + item.bytes
        record = {"id": item.id, "shape": list(item.shape), "format": item.format}
        record |= {"layout": item.layout, "offset": offset, "bytes": item.bytes, "kind": "tensor"}
        objects.append(record)
    root = {"components": parts, "objects": objects, "bindings": _bindings_json(plan.bindings)}
    root |= {"uses": _uses_json(plan.uses), "metadata": {"name": "stand-in"}, "provenance": {}}
    return _file_v3(root, end)


def lay_upgraded(
    inventory: LegacyInventory, resource_bytes: Sequence[int], groups: Sequence[str] | None
) -> Laid:
    """Lay out what the upgrade tool makes of a version 2 file of the inventory."""
    old = json.loads(lay_legacy(inventory, resource_bytes, groups).json)["objects"]
    objects: list[dict[str, Any]] = []
    for item in old:
        record = {"id": item["name"], "kind": item["kind"]}
        record |= {"offset": item["offset"], "bytes": item["bytes"]}
        if item["kind"] == "tensor":
            record["shape"] = item["shape"]
            record["format"] = nf.canonical_format(item["format"])
            record["layout"] = nf.canonical_layout(item["layout"])
        else:
            record["encoding"] = nf.RAW_ENCODING
        objects.append(record)
    template = objects.pop(2)
    template["offset"] = align_up(objects[-1]["offset"] + objects[-1]["bytes"], 256)
    template["bytes"] = UPGRADED_TEMPLATE_BYTES
    objects.append(template)
    parts: dict[str, Any] = {}
    for c in components_of(inventory, groups):
        parts[c.name] = {"config": c.config} | ({"target": c.target} if c.target else {})
        parts[c.name] |= {"resources": dict(c.resources)} if c.resources else {}
        if c.proposal:
            parts[c.name]["proposal"] = {"domain": c.proposal.domain, "rows": c.proposal.rows}
    old_identity = {"model_id": inventory.model_id, "weights_id": inventory.weights_id}
    root = {"components": parts, "objects": objects}
    root |= {"bindings": _bindings_json(bindings_of(inventory, groups))}
    root |= {"uses": _uses_json(uses_of(inventory, groups))}
    root |= {"metadata": {"name": inventory.model_id}}
    root |= {"provenance": {"upgraded_from": {"version": 2, **old_identity}}}
    return _file_v3(root, template["offset"] + template["bytes"])


@pytest.fixture
def legacy_layout() -> Callable[..., Laid]:
    return lay_legacy


@pytest.fixture
def v3_layout() -> Callable[..., Laid]:
    return lay_v3


@pytest.fixture
def upgraded_layout() -> Callable[..., Laid]:
    return lay_upgraded


@pytest.fixture
def qwen3_8_bytes() -> tuple[int, ...]:
    return QWEN3_8_BYTES
