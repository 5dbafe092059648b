"""Registered identities: which inventory a version 1/2 file should have, and what it has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ninfer_formats import numeric_formats as nf
from ninfer_formats.inventories.family import family_geometry
from ninfer_formats.inventories.geometry import DRAFTERS
from ninfer_formats.inventories.legacy import LegacyInventory, build_legacy
from ninfer_formats.inventories.profiles import build_mixed_nvfp4, build_profile

# The form of an inventory under an identity that was registered for another one.
COMMUNITY = "w8-nvfp4"

# (model_id, weights_id) of every version 2 contract.
IDENTITIES = (
    ("qwen3.6-27b", "groupwise-int"),
    ("qwen3.6-27b", "nvfp4"),
    ("qwen3.6-35b-a3b", "groupwise-int"),
    ("qwen3.8-27b", "groupwise-int"),
    ("qwen3.8-27b", "nvfp4"),
)
_KNOWN_PREFIXES = frozenset({"frontend", "text", "mtp", "vision"})


class Mismatch(NamedTuple):
    """A tensor whose shape or format is not the registered one: (shape, format) pairs."""

    name: str
    got: tuple[tuple[int, ...], str]
    want: tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class InventoryMatch:
    """A file's object names against a registered inventory.

    `present` are the complete groups, `absent` those without any object, `partial` maps a group
    that is there in part to the missing names. `extra` are names the inventory does not know.
    """

    inventory: LegacyInventory
    present: tuple[str, ...]
    absent: tuple[str, ...]
    partial: Mapping[str, tuple[str, ...]]
    extra: tuple[str, ...]

    @property
    def bound_groups(self) -> tuple[str, ...]:
        """The groups with at least one object."""
        return tuple(name for name in self.inventory.groups if name not in self.absent)

    @property
    def missing(self) -> tuple[str, ...]:
        """Names without which the version 2 contract is broken, in file order.

        An absent drafter breaks nothing; an absent text, proposal, mtp or vision group and every
        partial group do.
        """
        required = [name for name in self.absent if name not in DRAFTERS]
        names = [name for group in required for name in self.inventory.groups[group]]
        return (*(name for group in self.partial.values() for name in group), *names)

    @property
    def unknown_groups(self) -> tuple[str, ...]:
        """First path parts of extra names that no known group has: skippable with a notice."""
        return tuple(sorted({name.partition("/")[0] for name in self.extra} - _KNOWN_PREFIXES))

    @property
    def unexpected(self) -> tuple[str, ...]:
        """Extra names inside known groups: the file is not what its identity says."""
        return tuple(n for n in self.extra if n.partition("/")[0] in _KNOWN_PREFIXES)


def registered_inventory(model_id: str, weights_id: str, form: str = "") -> LegacyInventory:
    """Return the inventory of an identity; `form` COMMUNITY asks for the other qwen3.8-27b/nvfp4.

    Raises KeyError for an identity that is not in `IDENTITIES`.
    """
    if (model_id, weights_id) not in IDENTITIES:
        raise KeyError((model_id, weights_id))
    geometry = family_geometry(model_id)
    if model_id == "qwen3.6-27b":
        # Its drafter was published after version 2.
        geometry = replace(geometry, drafter=None)
    if weights_id != "nvfp4":
        profile = build_profile(weights_id, geometry, model_id)
    elif model_id == "qwen3.8-27b" and form != COMMUNITY:
        profile = build_profile("nvfp4-official", geometry, model_id)
    else:
        profile = build_mixed_nvfp4()
    return build_legacy(model_id, weights_id, geometry, profile, form)


def find_inventory(
    version: int,
    model_id: str,
    weights_id: str | None,
    object_ids: Collection[str],
    token_embedding_format: str | None = None,
) -> InventoryMatch | None:
    """Return how a version 1/2 file's objects match its identity, None if it is not registered.

    Version 1 has no weights_id: its files are groupwise-int. Two inventories share the identity
    qwen3.8-27b/nvfp4; `token_embedding_format` (canonical name) tells them apart: q8_g32_fp16 is
    the community form, anything else is held against the official one.
    """
    weights_id = "groupwise-int" if version == 1 else weights_id
    if weights_id is None or (model_id, weights_id) not in IDENTITIES:
        return None
    shared = (model_id, weights_id) == ("qwen3.8-27b", "nvfp4")
    form = COMMUNITY if shared and token_embedding_format == nf.Q8 else ""
    return _match(registered_inventory(model_id, weights_id, form), object_ids)


def _match(inventory: LegacyInventory, object_ids: Collection[str]) -> InventoryMatch:
    found = frozenset(object_ids)
    known: set[str] = set()
    present: list[str] = []
    absent: list[str] = []
    partial: dict[str, tuple[str, ...]] = {}
    for group, names in inventory.groups.items():
        known.update(names)
        missing = tuple(name for name in names if name not in found)
        if not missing:
            present.append(group)
        elif len(missing) == len(names):
            absent.append(group)
        else:
            partial[group] = missing
    extra = tuple(name for name in object_ids if name not in known)
    return InventoryMatch(inventory, tuple(present), tuple(absent), partial, extra)


def find_mismatches(
    inventory: LegacyInventory, descriptors: Mapping[str, tuple[tuple[int, ...], str]]
) -> tuple[Mismatch, ...]:
    """Return the tensors whose (shape, format) differ from the inventory's, in file order."""
    return tuple(
        Mismatch(t.name, descriptors[t.name], (t.shape, t.format))
        for t in inventory.tensors
        if t.name in descriptors and descriptors[t.name] != (t.shape, t.format)
    )
