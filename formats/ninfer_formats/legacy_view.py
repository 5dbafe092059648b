"""A version 1 or 2 directory seen through the names of version 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from ninfer_formats.directory import (
    Binding,
    Component,
    Identity,
    Resource,
    StoredObject,
    Tensor,
    Use,
)
from ninfer_formats.inventories.legacy import LegacyTensor
from ninfer_formats.inventories.legacy_bindings import bindings_of, components_of, uses_of
from ninfer_formats.inventories.registered import InventoryMatch, find_inventory


class LegacyView:
    """How the objects of a directory match the registered inventory of its identity.

    `match` is None for an identity that is not registered; there is nothing to present then. A
    tensor whose shape is not the registered one is left out: its rows would mean something else.
    """

    def __init__(
        self, version: int, identity: Identity, objects: Mapping[str, StoredObject]
    ) -> None:
        self._objects = objects
        embedding = objects.get("text/token_embedding")
        self.match: InventoryMatch | None = find_inventory(
            version,
            identity.model_id,
            identity.weights_id,
            objects,
            embedding.format if isinstance(embedding, Tensor) else None,
        )

    @cached_property
    def components(self) -> Mapping[str, Component]:
        if self.match is None:
            return {}
        found = components_of(self.match.inventory, self.match.bound_groups)
        return {item.name: self._with_stored_resources(item) for item in found}

    @cached_property
    def bindings(self) -> Mapping[str, Binding]:
        if self.match is None:
            return {}
        return bindings_of(self.match.inventory, self.match.bound_groups, self._unusable)

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        if self.match is None:
            return ()
        formats = {
            item.id: item.format for item in self._objects.values() if isinstance(item, Tensor)
        }
        return uses_of(self.match.inventory, self.match.bound_groups, self._unusable, formats)

    @cached_property
    def _unusable(self) -> frozenset[str]:
        if self.match is None:
            return frozenset()
        tensors = self.match.inventory.tensors
        return frozenset(item.name for item in tensors if not self._is_stored(item))

    def _is_stored(self, want: LegacyTensor) -> bool:
        found = self._objects.get(want.name)
        return isinstance(found, Tensor) and found.shape == want.shape

    def _with_stored_resources(self, component: Component) -> Component:
        stored = {
            role: target
            for role, target in component.resources.items()
            if isinstance(self._objects.get(target), Resource)
        }
        return replace(component, resources=stored)
