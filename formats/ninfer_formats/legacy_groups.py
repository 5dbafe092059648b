"""The groups of a version 1 or 2 file against the registered inventory of its identity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ninfer_formats.directory import StoredObject, Tensor
from ninfer_formats.errors import ArtifactError
from ninfer_formats.group_state import GroupState
from ninfer_formats.inventories.legacy import GROUPS
from ninfer_formats.inventories.registered import IDENTITIES, InventoryMatch, find_mismatches
from ninfer_formats.ownership import is_known, legacy_owner

if TYPE_CHECKING:
    from ninfer_formats.reader import Artifact


def legacy_groups(artifact: Artifact) -> tuple[GroupState, ...]:
    """Return the groups in file order, unknown ones last; counts are left at zero."""
    match = artifact.legacy.match if artifact.legacy else None
    if match is None:
        return tuple(_unregistered(artifact))
    faults = _find_faults(match, artifact.objects)
    known = tuple(_known(group, match, tuple(faults.get(group, ()))) for group in GROUPS)
    others = {legacy_owner(name): None for name in match.extra}
    unknown = tuple(
        GroupState(group, "unknown", reason=f"{artifact.identity} has no group {group}")
        for group in others
        if group not in match.inventory.groups
    )
    skipped = {state.group for state in unknown}
    return (*(state for state in known if state.group not in skipped), *unknown)


def _known(group: str, match: InventoryMatch, faults: tuple[ArtifactError, ...]) -> GroupState:
    if group in match.partial or faults:
        return GroupState(group, "partial", match.partial.get(group, ()), faults)
    return GroupState(group, "complete" if group in match.present else "absent")


def _unregistered(artifact: Artifact) -> Iterator[GroupState]:
    registered = ", ".join("/".join(pair) for pair in IDENTITIES)
    reason = f"identity {artifact.identity} is not registered (known: {registered})"
    found = dict.fromkeys(legacy_owner(name) for name in artifact.objects)
    for group in (*GROUPS, *(name for name in found if not is_known(name))):
        if group not in found:
            yield GroupState(group, "absent")
        elif is_known(group):
            yield GroupState(group, "unreadable", reason=reason)
        else:
            yield GroupState(group, "unknown", reason="not a group of this release")


def _find_faults(
    match: InventoryMatch, objects: Mapping[str, StoredObject]
) -> dict[str, list[ArtifactError]]:
    faults: dict[str, list[ArtifactError]] = {}
    inventory = match.inventory
    stored = {i.id: (i.shape, i.format) for i in objects.values() if isinstance(i, Tensor)}
    for name, got, want in find_mismatches(inventory, stored):
        error = ArtifactError(
            "tensor is not the registered one",
            where=f"object {name}",
            got=_descriptor(*got),
            want=_descriptor(*want),
        )
        faults.setdefault(inventory.by_name[name].group, []).append(error)
    for name in (*inventory.resources, *inventory.by_name):
        expected = "tensor" if name in inventory.by_name else "resource"
        if name in objects and objects[name].kind != expected:
            error = ArtifactError(
                "object is of the wrong kind",
                where=f"object {name}",
                got=objects[name].kind,
                want=expected,
            )
            faults.setdefault(legacy_owner(name), []).append(error)
    for name in match.extra:
        if legacy_owner(name) in inventory.groups:
            error = ArtifactError(
                f"{inventory.model_id}/{inventory.weights_id} has no such object",
                where=f"object {name}",
            )
            faults.setdefault(legacy_owner(name), []).append(error)
    return faults


def _descriptor(shape: tuple[int, ...], format: str) -> str:
    return f"{format} {list(shape)}"
