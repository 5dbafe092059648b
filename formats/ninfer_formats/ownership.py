"""Which group of a model every stored object belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ninfer_formats.directory import Binding
from ninfer_formats.inventories.legacy import GROUPS
from ninfer_formats.inventories.legacy_tables import FRONTEND_RESOURCES

if TYPE_CHECKING:
    from ninfer_formats.reader import Artifact

# The group of an object that no component, binding or use refers to; no name begins like this.
UNREFERENCED = "\0"
_DRAFT_HEAD = ("text/draft_head", "text/draft_head_token_ids")
_LEGACY_OWNERS = {name: owner for name, _, owner in FRONTEND_RESOURCES} | dict.fromkeys(
    _DRAFT_HEAD, "proposal"
)


def group_of(name: str) -> str:
    """Return the group that a parameter or version 1/2 object name begins with."""
    return name.partition("/")[0]


def is_known(group: str) -> bool:
    """Return whether this release knows the group; others are skipped with a notice."""
    return group in GROUPS


def own_objects(
    artifact: Artifact, bindings: Mapping[str, Binding] | None = None
) -> dict[str, str]:
    """Return object id -> group for every object, `UNREFERENCED` where nothing refers to it.

    `bindings` are those of the artifact, if the caller has made the records already. A shared
    object belongs to the first group that refers to it: resources come before bindings, bindings
    before auxiliaries.
    """
    if artifact.version == 3:
        owners = dict.fromkeys(artifact.objects, UNREFERENCED)
        for object_id, group in _references(
            artifact, artifact.bindings if bindings is None else bindings
        ):
            if owners[object_id] == UNREFERENCED:
                owners[object_id] = group
        return owners
    return {name: legacy_owner(name) for name in artifact.objects}


def legacy_owner(name: str) -> str:
    """Return the group of a version 1/2 object; frontend files belong to a component."""
    owner = _LEGACY_OWNERS.get(name) or group_of(name)
    return "text" if owner == "frontend" else owner


def _references(artifact: Artifact, bindings: Mapping[str, Binding]) -> Iterator[tuple[str, str]]:
    for (component, _), resource in artifact.resources.items():
        yield resource.id, component
    for name, binding in bindings.items():
        for part in binding.parts:
            yield part.object, group_of(name)
    for use in artifact.uses:
        for binding in use.auxiliaries.values():
            for part in binding.parts:
                yield part.object, group_of(use.parameter)
