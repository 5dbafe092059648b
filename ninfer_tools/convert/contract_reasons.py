"""Why a conversion does not fill a version 2 contract, one line per reason (rule V-141)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ninfer_formats.directory import Binding, Tensor
from ninfer_formats.errors import ArtifactError
from ninfer_formats.inventories.geometry import DRAFTERS, ModelGeometry
from ninfer_formats.inventories.legacy import LegacyInventory, LegacyTensor
from ninfer_formats.inventories.legacy_tables import FRONTEND_RESOURCES
from ninfer_formats.inventories.registered import IDENTITIES, registered_inventory
from ninfer_tools.migrate.groups import is_same_model

VERSION_3 = "leave --container 2 out: version 3 holds every model"
_NUMBER = re.compile(r"/\d+/")
# A serving limit, and a constant that configs round to float32 or not.
_SOFT_FIELDS = frozenset({"max_position_embeddings", "rms_norm_eps"})


@dataclass(frozen=True)
class Offer:
    """What a conversion would store. `origins` says what decided the format of a parameter."""

    geometry: ModelGeometry
    components: tuple[str, ...]
    proposal_rows: int
    resources: frozenset[str]
    bindings: Mapping[str, Binding]
    tensors: Mapping[str, Tensor]
    origins: Mapping[str, str]


def list_candidates(geometry: ModelGeometry) -> list[LegacyInventory]:
    """Return the contracts of this text model; ArtifactError naming what differs where none is."""
    every = [registered_inventory(*pair) for pair in IDENTITIES]
    same = [item for item in every if is_same_model(item.geometry.text, geometry.text)]
    if same:
        return same
    gaps = {item.model_id: _differences(item.geometry.text, geometry.text) for item in every}
    model_id = min(gaps, key=lambda name: len(gaps[name]))
    names = ", ".join(dict.fromkeys(item.model_id for item in every))
    raise ArtifactError(
        f"container version 2 exists for {names} only; {model_id}, the nearest, differs in "
        + ", ".join(gaps[model_id]),
        remedy=VERSION_3,
    )


def find_reasons(offer: Offer, inventory: LegacyInventory) -> list[ArtifactError]:
    """Return everything that keeps the offer from being this inventory, nothing if it is."""
    name = f"{inventory.model_id}/{inventory.weights_id}"
    groups = [group for group in inventory.groups if group in {*offer.components, "proposal"}]
    return [
        *_component_reasons(offer, inventory, name),
        *_resource_reasons(offer, name),
        *_tensor_reasons(offer, inventory.select(groups), name),
    ]


def _differences(want: Any, got: Any) -> list[str]:
    """Return `field got (want …)` of every field that differs between two geometries."""
    found = []
    for field in fields(want):
        a, b = getattr(got, field.name), getattr(want, field.name)
        if a == b or field.name in _SOFT_FIELDS:
            continue
        if field.name == "layer_types":
            if len(a) == len(b):
                found.append("the types of its layers")
                continue
            a, b = len(a), len(b)
        name = "num_hidden_layers" if field.name == "layer_types" else field.name
        found.append(f"{name} {a} (want {b})")
    return found


def _component_reasons(
    offer: Offer, inventory: LegacyInventory, name: str
) -> Iterator[ArtifactError]:
    held = inventory.geometry
    for item in ("mtp", "vision"):
        if item not in offer.components:
            remedy = f"add {item} to --components, or convert a checkpoint that has it"
            yield ArtifactError(f"{name} has the component {item}, this has not", remedy=remedy)
    for item in offer.components:
        if item not in held.components:
            kept = ",".join(n for n in offer.components if n != item)
            remedy = f"--components {kept},proposal, or version 3"
            yield ArtifactError(f"{name} has no place for the component {item}", remedy=remedy)
    ours = offer.geometry
    pairs: list[tuple[str, Any, Any]] = [("vision", held.vision, ours.vision)]
    if ours.drafter is not None and held.drafter is not None:
        pairs.append((ours.drafter.kind, held.drafter, ours.drafter))
    for item, want, got in pairs:
        if want is not None and got is not None and (gaps := _differences(want, got)):
            what = f"{name} has another {item}: {', '.join(gaps)}"
            remedy = f"leave {item} out" if item in DRAFTERS else VERSION_3
            yield ArtifactError(what, remedy=remedy)
    rows = inventory.proposal_rows
    if offer.proposal_rows != rows:
        yield ArtifactError(
            f"{name} has a proposal head of another size", got=f"{offer.proposal_rows} rows",
            want=f"{rows} rows", remedy=f"--proposal-rows {rows}",
        )  # fmt: skip


def _resource_reasons(offer: Offer, name: str) -> Iterator[ArtifactError]:
    for _, role, owner in FRONTEND_RESOURCES:
        if owner in offer.components and role not in offer.resources:
            what, remedy = f"{name} holds {role}, this has none", f"--resource {role}=FILE"
            yield ArtifactError(what, remedy=remedy)


def _tensor_reasons(
    offer: Offer, tensors: Iterable[LegacyTensor], name: str
) -> Iterator[ArtifactError]:
    others: dict[tuple[str, str, str, str], list[str]] = {}
    for tensor in tensors:
        if tensor.auxiliary_of:
            continue
        for parameter, size in tensor.members:
            binding = offer.bindings.get(parameter)
            if binding is None:
                # Its component or the proposal head is missing, which was said.
                break
            part = binding.parts[0]
            if part.end - part.begin != size:
                got, want = f"{part.end - part.begin:,} elements", f"{size:,}"
                what = f"{name} holds {parameter} in another size"
                yield ArtifactError(what, got=got, want=want, remedy=VERSION_3)
                break
            format = offer.tensors[part.object].format
            if format != tensor.format:
                pattern = _NUMBER.sub("/*/", tensor.name)
                key = (pattern, format, tensor.format, offer.origins[parameter])
                others.setdefault(key, []).append(tensor.name)
                break
    for (pattern, got, want, origin), names in others.items():
        where = names[0] if len(names) == 1 else f"{pattern} ({len(names)} objects)"
        what = f"{name} stores it in another format"
        yield ArtifactError(what, where=where, got=got, want=want, remedy=_format_remedy(origin))


def _format_remedy(origin: str) -> str:
    if origin == "profile":
        return "--profile groupwise-int or nvfp4, whichever the source can fill"
    if origin == "source":
        return f"convert the unquantised checkpoint, or {VERSION_3}"
    return f"leave the rule out ({origin}), or {VERSION_3}"
