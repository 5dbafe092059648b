"""A version 1/2 directory seen through version 3 names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import (
    A16_ONLY,
    ALLOW_A4,
    ALLOW_A8,
    INPUT_DIVISOR,
    Binding,
    Component,
    Part,
    Proposal,
    Use,
)
from ninfer_formats.inventories.component_configs import component_configs
from ninfer_formats.inventories.legacy import LegacyInventory
from ninfer_formats.inventories.legacy_tables import FRONTEND_RESOURCES
from ninfer_formats.inventories.parameters import Parameter, list_parameters

# What an upgraded file permits for products with a weight of a format.
UPGRADED_POLICIES: Mapping[str, str] = MappingProxyType({nf.NVFP4: ALLOW_A4, nf.FP8: ALLOW_A8})
_NO_AUXILIARIES: Mapping[str, Binding] = MappingProxyType({})


def bindings_of(
    inventory: LegacyInventory,
    groups: Iterable[str] | None = None,
    without: Collection[str] = (),
) -> dict[str, Binding]:
    """Return logical parameter -> binding for the tensors of `groups` (None: all of them).

    Tensors named in `without` (missing from a file) are left out. Shared parameters come last.
    """
    bindings: dict[str, Binding] = {}
    for tensor in inventory.select(groups):
        if tensor.name in without or tensor.auxiliary_of:
            continue
        ranges = tensor.ranges
        for name, begin, end in ranges:
            bindings[name] = Binding((Part(tensor.name, begin, end),), len(ranges) == 1)
    for p in _drafter_aliases(inventory, groups):
        if p.alias_of in bindings:
            bindings[p.name] = bindings[p.alias_of]
    return bindings


def uses_of(
    inventory: LegacyInventory,
    groups: Iterable[str] | None = None,
    without: Collection[str] = (),
    formats: Mapping[str, str] | None = None,
) -> tuple[Use, ...]:
    """Return the uses of the bound parameters, as the upgrade tool writes them.

    The policy follows the weight's format: AllowA4 for NVFP4, AllowA8 for FP8 rows, else A16Only.
    `formats` (object name -> format) overrides the inventory's where a file differs from it. A
    divisor becomes an auxiliary of every use of every parameter of its projection.
    """
    stored: dict[str, str] = {}
    divisors: dict[str, Mapping[str, Binding]] = {}
    for tensor in inventory.select(groups):
        if tensor.name in without:
            continue
        format = tensor.format if formats is None else formats.get(tensor.name, tensor.format)
        stored.update((name, format) for name, _ in tensor.members)
        if tensor.auxiliary_of:
            binding = Binding((Part(tensor.name, 0, 1),), True)
            shared = MappingProxyType({INPUT_DIVISOR: binding})
            divisors.update((name, shared) for name in tensor.auxiliary_of)
    uses: list[Use] = []
    for p in _parameters(inventory, groups):
        format = stored.get(p.alias_of or p.name)
        if format is None:
            continue
        policy = UPGRADED_POLICIES.get(format, A16_ONLY)
        roles = divisors.get(p.name, _NO_AUXILIARIES)
        uses.extend(Use(p.name, site, policy, roles) for site in p.inputs)
    return tuple(uses)


def components_of(
    inventory: LegacyInventory, groups: Iterable[str] | None = None
) -> tuple[Component, ...]:
    """Return the components of `groups` with configs, targets and resources by role."""
    chosen = _chosen(inventory, groups)
    components = []
    for name, config in component_configs(inventory.geometry).items():
        if name not in chosen:
            continue
        resources = {role: id for id, role, owner in FRONTEND_RESOURCES if owner == name}
        proposal = None
        if name == "text" and "proposal" in chosen:
            proposal = Proposal("indexed", inventory.proposal_rows)
        target = None if name == "text" else "text"
        components.append(Component(name, config, target, resources, proposal))
    return tuple(components)


def _chosen(inventory: LegacyInventory, groups: Iterable[str] | None) -> frozenset[str]:
    # The text component always exists, even in a file whose text group is incomplete.
    return frozenset(inventory.groups if groups is None else groups) | {"text"}


def _parameters(inventory: LegacyInventory, groups: Iterable[str] | None) -> tuple[Parameter, ...]:
    chosen = _chosen(inventory, groups)
    rows = inventory.proposal_rows if "proposal" in chosen else None
    return list_parameters(inventory.geometry, chosen - {"proposal"}, rows)


def _drafter_aliases(inventory: LegacyInventory, groups: Iterable[str] | None) -> list[Parameter]:
    drafter = inventory.geometry.drafter
    if drafter is None or drafter.kind not in _chosen(inventory, groups):
        return []
    found = list_parameters(inventory.geometry, ("text", drafter.kind))
    return [p for p in found if p.alias_of is not None]
