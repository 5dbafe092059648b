"""The inventory of a version 3 artifact: parents, bindings, uses and auxiliaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import INPUT_DIVISOR, Binding, Part, Use
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.inventories.packing import Parent, pack_parameters
from ninfer_formats.inventories.parameters import Parameter, list_parameters
from ninfer_formats.inventories.profiles import Profile

_EMBEDDING, _HEAD = "text/token_embedding", "text/output_head"
_NO_AUXILIARIES: Mapping[str, Binding] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Auxiliary:
    """A stored float32 scalar (shape []) that belongs to one use."""

    id: str
    role: str
    parameter: str
    input: str
    shape: tuple[int, ...] = ()
    format: str = nf.FP32
    layout: str = nf.CONTIGUOUS
    bytes: int = 4


@dataclass(frozen=True)
class InventoryPlan:
    """Everything of a version 3 directory but offsets, resources and components.

    `parents` and then `auxiliaries` are in file order; `bindings` has every parameter of
    `parameters` exactly once, in parameter order with shared parameters last.
    """

    parameters: tuple[Parameter, ...]
    parents: tuple[Parent, ...]
    auxiliaries: tuple[Auxiliary, ...]
    bindings: Mapping[str, Binding]
    uses: tuple[Use, ...]


def plan_inventory(
    geometry: ModelGeometry,
    profile: Profile,
    components: Iterable[str],
    proposal_rows: int | None = None,
) -> InventoryPlan:
    """Return the inventory of the chosen components under a profile.

    A tied output head that gets the format of the embedding shares its object. Every use with an
    NVFP4 weight whose policy is AllowA4 gets an activation divisor of its own. Raises UsageError
    for components the model does not have and ArtifactError for shapes a format cannot hold.
    """
    parameters = list_parameters(geometry, components, proposal_rows)
    formats = {p.name: profile.assign(p).format for p in parameters}
    shared = {p.name: p.alias_of for p in parameters if p.alias_of is not None}
    if geometry.text.tie_word_embeddings and formats[_EMBEDDING] == formats[_HEAD]:
        shared[_HEAD] = _EMBEDDING
    own = [p for p in parameters if p.name not in shared]
    parents = pack_parameters(own, formats, profile.separate)
    bindings = _bind(parameters, parents, shared)
    uses, auxiliaries = _list_uses(parameters, formats, profile)
    return InventoryPlan(parameters, parents, auxiliaries, bindings, uses)


def _bind(
    parameters: Sequence[Parameter], parents: Sequence[Parent], shared: Mapping[str, str]
) -> dict[str, Binding]:
    found: dict[str, Binding] = {}
    for parent in parents:
        whole = len(parent.ranges) == 1
        for name, begin, end in parent.ranges:
            found[name] = Binding((Part(parent.id, begin, end),), whole)
    bindings = {p.name: found[p.name] for p in parameters if p.name not in shared}
    bindings.update((name, found[target]) for name, target in shared.items())
    return bindings


def _list_uses(
    parameters: Sequence[Parameter], formats: Mapping[str, str], profile: Profile
) -> tuple[tuple[Use, ...], tuple[Auxiliary, ...]]:
    uses: list[Use] = []
    auxiliaries: list[Auxiliary] = []
    for p in parameters:
        policy = profile.policy_of(formats[p.name])
        with_divisor = profile.needs_divisor(formats[p.name])
        for site in p.inputs:
            roles = _NO_AUXILIARIES
            if with_divisor:
                id = f"auxiliary/{len(auxiliaries):06d}"
                auxiliaries.append(Auxiliary(id, INPUT_DIVISOR, p.name, site))
                roles = MappingProxyType({INPUT_DIVISOR: Binding((Part(id, 0, 1),), True)})
            uses.append(Use(p.name, site, policy, roles))
    return tuple(uses), tuple(auxiliaries)
