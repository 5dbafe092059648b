"""Which version 2 contract a specification fills: only the registered models, whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ninfer_formats.directory import Identity
from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.family import PROPOSAL_ROWS, family_geometry
from ninfer_formats.inventories.geometry import DRAFTERS
from ninfer_formats.inventories.legacy import LegacyInventory, LegacyTensor
from ninfer_formats.inventories.parameters import list_parameters
from ninfer_formats.inventories.registered import IDENTITIES, registered_inventory
from ninfer_tools.synthetic.spec_text import describe_spec
from ninfer_tools.synthetic.specification import SyntheticSpec
from ninfer_tools.synthetic.vocabulary import Vocabulary

# Version 2 calls the published inventory plainly `nvfp4`; the profile of that name is another.
_WEIGHTS_IDS = {"groupwise-int": "groupwise-int", "nvfp4-official": "nvfp4"}
_REQUIRED = ("text", "mtp", "vision")


@dataclass(frozen=True)
class LegacyContract:
    """A version 2 identity, its tensors in file order, and the input site of each divisor's
    parameters."""

    identity: Identity
    tensors: tuple[LegacyTensor, ...]
    sites: Mapping[str, str]


def find_contract(spec: SyntheticSpec) -> LegacyContract:
    """Return the contract of a specification; UsageError, naming what exists, where none does."""
    weights_id = _WEIGHTS_IDS.get(spec.profile)
    if weights_id is None or (spec.model, weights_id) not in IDENTITIES:
        raise _refuse(spec, f"{spec.model} with profile {spec.profile} was never registered")
    inventory = registered_inventory(spec.model, weights_id)
    if reasons := list(_find_reasons(spec, inventory)):
        raise _refuse(spec, "; ".join(reasons))
    groups = (*spec.components, "proposal")
    tensors = inventory.select(groups)
    owners = {item.auxiliary_of[0] for item in tensors if item.auxiliary_of}
    sites = {}
    if owners:
        found = list_parameters(inventory.geometry, ("text",))
        sites = {p.name: p.inputs[0] for p in found if p.name in owners}
    return LegacyContract(Identity(spec.model, weights_id), tensors, sites)


def _find_reasons(spec: SyntheticSpec, inventory: LegacyInventory) -> list[str]:
    reasons = []
    layers = family_geometry(spec.model).text.num_hidden_layers
    if spec.layers not in (None, layers):
        reasons.append(f"it has all {layers} layers")
    if spec.vocab != Vocabulary().tokens:
        reasons.append(f"it has {Vocabulary().tokens} token ids")
    if spec.proposal != PROPOSAL_ROWS:
        reasons.append(f"it has {PROPOSAL_ROWS} proposal rows")
    if missing := [name for name in _REQUIRED if name not in spec.components]:
        reasons.append(f"it has {' and '.join(missing)}")
    for name in spec.components:
        if name in DRAFTERS and name not in inventory.groups:
            reasons.append(f"it has no {name}")
    return reasons


def _refuse(spec: SyntheticSpec, reason: str) -> UsageError:
    profiles = {weights_id: profile for profile, weights_id in _WEIGHTS_IDS.items()}
    names = ", ".join(f"{model}:{profiles[weights_id]}" for model, weights_id in IDENTITIES)
    return UsageError(
        f"no version 2 contract: {reason}",
        got=describe_spec(spec),
        want=f"{names}; the drafter is optional",
        remedy="choose one of these, or write container version 3",
    )
