"""Plan a synthetic artifact: every byte position, and what decides the bytes of each object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ninfer_formats.directory import Component, Proposal, Resource
from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.component_configs import component_configs
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.inventories.legacy_tables import FRONTEND_RESOURCES
from ninfer_formats.inventories.plan import InventoryPlan, plan_inventory
from ninfer_formats.inventories.profiles import build_profile
from ninfer_formats.write_plan import (
    DEFAULT_MAX_FILE_BYTES,
    DirectoryDraft,
    WritePlan,
    make_resource,
    make_tensor,
    place_objects,
    plan_v2,
    plan_v3,
)
from ninfer_tools.synthetic.frontend import build_frontend
from ninfer_tools.synthetic.legacy_contract import LegacyContract, find_contract
from ninfer_tools.synthetic.seeds import divisor_name, name_key
from ninfer_tools.synthetic.spec_text import describe_spec
from ninfer_tools.synthetic.specification import SyntheticSpec
from ninfer_tools.synthetic.tensor_blocks import Block, from_bytes, list_blocks


@dataclass(frozen=True)
class SyntheticPlan:
    """A synthetic artifact that can be written, or read without being written.

    `resources` holds the bytes of resources by object id. `parameters` maps a tensor's object id
    to the logical name that decides its values and its seed: the first parameter of the tensor,
    so that versions 2 and 3 of one specification hold the same weights; for an activation divisor
    a name made of its input site, so that all uses at one site agree on it.
    """

    spec: SyntheticSpec
    written: WritePlan
    resources: Mapping[str, bytes]
    parameters: Mapping[str, str]

    def blocks(self, object_id: str) -> Iterator[Block]:
        """Yield the CPU-drawn blocks of an object, ascending and without holes."""
        item = self.written.objects[object_id]
        if isinstance(item, Resource):
            yield from_bytes(self.resources[object_id])
            return
        yield from list_blocks(
            item.format,
            item.layout,
            item.shape,
            self.seed_key(object_id),
            parameter=self.parameters[object_id],
            vocabulary=self.spec.vocabulary,
        )

    def seed_key(self, object_id: str) -> tuple[int, int]:
        """Return the seed key of a tensor."""
        return name_key(self.spec.seed, self.parameters[object_id])


def plan_artifact(
    spec: SyntheticSpec,
    entry_name: str,
    container: int = 3,
    max_file_bytes: int = DEFAULT_MAX_FILE_BYTES,
    artifact_id: bytes | None = None,
    device: str = "cpu",
) -> SyntheticPlan:
    """Plan the artifact of a specification; nothing is drawn but its tokenizer.

    `artifact_id` (16 bytes, version 3) is derived from the directory when not given. The kind of
    `device` is recorded in the provenance, because it decides the bytes too. Raises UsageError
    when container version 2 has no contract for the specification, and what `plan_inventory` and
    `plan_v3` raise.
    """
    if container == 2:
        return _plan_v2(spec, entry_name)
    if container != 3:
        raise UsageError("container version cannot be written", got=container, want="2 or 3")
    geometry = spec.geometry()
    profile = build_profile(spec.profile, geometry, spec.model)
    inventory = plan_inventory(geometry, profile, spec.components, spec.proposal)
    resources = _name_resources(spec)
    tensors = (*inventory.parents, *inventory.auxiliaries)
    draft = DirectoryDraft(
        components=_describe_components(spec, geometry, resources),
        objects=place_objects(
            [
                *(make_resource(id, len(data)) for id, data in resources.items()),
                *(make_tensor(item.id, item.shape, item.format) for item in tensors),
            ]
        ),
        bindings=inventory.bindings,
        uses=inventory.uses,
        metadata={"name": spec.model},
        provenance={
            "converter": "ninfer",
            "synthetic": describe_spec(spec),
            "device": device.partition(":")[0],
        },
    )
    plan = plan_v3(draft, entry_name, max_file_bytes, artifact_id)
    return SyntheticPlan(spec, plan, resources, _name_parameters(inventory))


def _name_parameters(inventory: InventoryPlan) -> dict[str, str]:
    names = {parent.id: parent.ranges[0].parameter for parent in inventory.parents}
    return names | {item.id: divisor_name(item.input) for item in inventory.auxiliaries}


def _name_resources(spec: SyntheticSpec) -> dict[str, bytes]:
    """Return the resources by version 3 object id, in file order."""
    frontend = build_frontend(spec.vocab, spec.seed)
    return {
        f"resource/{owner}/{role}": frontend[role]
        for _, role, owner in FRONTEND_RESOURCES
        if owner in spec.components
    }


def _describe_components(
    spec: SyntheticSpec, geometry: ModelGeometry, resources: Mapping[str, bytes]
) -> tuple[Component, ...]:
    components = []
    for name, config in component_configs(geometry).items():
        prefix = f"resource/{name}/"
        roles = {id.removeprefix(prefix): id for id in resources if id.startswith(prefix)}
        indexed = name == "text" and spec.proposal is not None
        proposal = Proposal("indexed", spec.proposal) if indexed else None
        target = None if name == "text" else "text"
        components.append(Component(name, config, target, roles, proposal))
    return tuple(components)


def _plan_v2(spec: SyntheticSpec, entry_name: str) -> SyntheticPlan:
    contract = find_contract(spec)
    frontend = build_frontend(spec.vocab, spec.seed)
    resources = {name: frontend[role] for name, role, _ in FRONTEND_RESOURCES}
    objects = place_objects(
        [
            *(make_resource(name, len(data)) for name, data in resources.items()),
            *(make_tensor(item.name, item.shape, item.format) for item in contract.tensors),
        ]
    )
    plan = plan_v2(contract.identity, objects, entry_name)
    return SyntheticPlan(spec, plan, resources, _name_legacy_parameters(contract))


def _name_legacy_parameters(contract: LegacyContract) -> dict[str, str]:
    names = {}
    for item in contract.tensors:
        if item.auxiliary_of:
            names[item.name] = divisor_name(contract.sites[item.auxiliary_of[0]])
        else:
            names[item.name] = next(iter(item.members))[0]
    return names
