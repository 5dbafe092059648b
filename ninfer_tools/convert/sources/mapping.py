"""Every logical parameter of a model to where its rows come from (rules S-42 to S-49, S-65)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.inventories.geometry import DRAFTERS, ModelGeometry
from ninfer_formats.inventories.parameters import Parameter, list_parameters
from ninfer_tools.convert.sources.checkpoint import Checkpoint
from ninfer_tools.convert.sources.leftovers import EXPERTS, sort_leftovers
from ninfer_tools.convert.sources.lookup import SourceLookup
from ninfer_tools.convert.sources.name_lists import name_some, shorten_problems
from ninfer_tools.convert.sources.parameter_source import ParameterSource
from ninfer_tools.convert.sources.quantization import DIRECT

BASE, MTP, QUANTIZED = "base", "mtp", "quantized"
SOURCE_NAMES = (BASE, MTP, QUANTIZED, *DRAFTERS)

_EMBEDDING, _HEAD = "text/token_embedding", "text/output_head"
_PROPOSAL_HEAD = "proposal/head"
_REMEDIES = {
    "mtp": "convert without mtp, or add --source mtp=<original>",
    "vision": "convert without vision, or name a checkpoint that has it",
    **{name: f"add --source {name}=<its checkpoint>" for name in DRAFTERS},
}


@dataclass(frozen=True)
class SourceMap:
    """Where parameters come from.

    `sources` has every parameter but `proposal/token_ids`, in parameter order, as far as it was
    found. `missing` are tensor names; `ignored` are all tensors that are left out, `unplaced` those
    of them that belong to no component, and `extra` as in `Leftovers`. The sources are complete
    when there is no problem.
    """

    sources: Mapping[str, ParameterSource]
    problems: tuple[NinferError, ...]
    missing: tuple[str, ...]
    ignored: tuple[str, ...]
    extra: tuple[str, ...]
    unplaced: tuple[str, ...] = ()


def map_sources(
    geometry: ModelGeometry,
    components: Collection[str],
    checkpoints: Mapping[str, Checkpoint],
    proposal_ids: NDArray[Any] | None = None,
) -> SourceMap:
    """Return the source of every parameter of the components.

    `checkpoints` are called base (required), mtp, quantized, dflash, dflash2. `proposal_ids` are
    the token ids of the rows of `proposal/head`. `geometry` says tied only when the head is to
    be the embedding, as `read_geometry` does. Raises UsageError as `list_parameters`.
    """
    rows = None if proposal_ids is None else len(proposal_ids)
    parameters = list_parameters(geometry, components, rows)
    lookups = {key: SourceLookup(item, geometry) for key, item in checkpoints.items()}
    mapping = _Mapping(geometry, lookups)
    for parameter in parameters:
        if parameter.residency != "proposal":
            mapping.add(parameter)
    if proposal_ids is not None:
        head = next(p for p in parameters if p.name == _PROPOSAL_HEAD)
        mapping.add_proposal(head, proposal_ids)
    left = sort_leftovers(lookups, components, geometry)
    missing = tuple(name for names in mapping.missing.values() for name in names)
    problems = shorten_problems(
        (*mapping.problems.values(), *mapping.explain_missing(left.odd_experts), *left.problems)
    )
    ignored = tuple(sorted({*left.ignored, *left.unplaced, *left.unconverted}))
    return SourceMap(
        mapping.sources, problems, missing, ignored, tuple(left.extra), tuple(left.unplaced)
    )


@dataclass
class _Mapping:
    geometry: ModelGeometry
    lookups: Mapping[str, SourceLookup]
    sources: dict[str, ParameterSource] = field(default_factory=dict)
    # By text: parameters that share a tensor share its error.
    problems: dict[str, NinferError] = field(default_factory=dict)
    # Component -> tensor names as ordered sets.
    wanted: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    missing: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, parameter: Parameter) -> None:
        target = self._alias_of(parameter)
        if target is None:
            self._add_own(parameter)
        elif target in self.sources:
            shared = self.sources[target]
            self.sources[parameter.name] = replace(shared, parameter=parameter, shared_with=target)

    def _alias_of(self, parameter: Parameter) -> str | None:
        if parameter.name == _HEAD and self.geometry.text.tie_word_embeddings:
            for lookup in self.lookups.values():
                lookup.know_head()
            return _EMBEDDING
        return parameter.alias_of

    def _add_own(self, parameter: Parameter) -> None:
        lookup, found = self._choose(parameter)
        name = lookup.name_of(parameter) if lookup else parameter.name
        self.wanted[parameter.residency][name] = None
        if found is None:
            self.missing[parameter.residency][name] = None
        elif isinstance(found, NinferError):
            self.problems.setdefault(str(found), found)
        else:
            self.sources[parameter.name] = found

    def _choose(
        self, parameter: Parameter
    ) -> tuple[SourceLookup | None, ParameterSource | NinferError | None]:
        owner = self._owner(parameter.residency)
        if owner is None:
            return None, None
        found = owner.find(parameter)
        other = self.lookups.get(QUANTIZED)
        if other is None or owner is not self.lookups[BASE]:
            return owner, found
        preferred = other.find(parameter)
        if preferred is not None and (found is None or _prefers(preferred, parameter)):
            return other, preferred
        return owner, found

    def _owner(self, residency: str) -> SourceLookup | None:
        if residency in DRAFTERS:
            return self.lookups.get(residency)
        if residency == MTP and MTP in self.lookups:
            return self.lookups[MTP]
        return self.lookups[BASE]

    def add_proposal(self, parameter: Parameter, ids: NDArray[Any]) -> None:
        """Pick rows of the output head; of the unquantised one where there are two."""
        head = self.sources.get(_HEAD)
        if head is None:
            return
        if ids.size and not 0 <= ids.min() <= ids.max() < head.rows:
            got = f"{ids.min()} to {ids.max()}"
            raise UsageError("proposal ids are outside", got=got, want=f"0 to {head.rows - 1}")
        plain = None
        if head.kind != DIRECT and not self.geometry.text.tie_word_embeddings:
            plain = self.lookups[BASE].find(head.parameter)
        if isinstance(plain, ParameterSource) and plain.kind == DIRECT:
            head = plain
        self.sources[parameter.name] = head.pick(parameter, ids)

    def explain_missing(self, odd_experts: Collection[str]) -> Iterable[NinferError]:
        """Yield one error per component, without the tensors whose files cannot be read, and
        without experts of the checkpoints that store them in an unknown layout."""
        for component, names in self.missing.items():
            owner = self._owner(component)
            source = (owner or self.lookups[BASE]).checkpoint
            unreadable = _unreadable(source)
            absent = [name for name in names if name not in unreadable]
            if source.label in odd_experts:
                absent = [name for name in absent if EXPERTS not in name]
            # Other errors say it already.
            silent = component == "text" and source.prefixes.text is None
            if not absent or silent or (source.problems and not source.tensors):
                continue
            wanted = len(self.wanted[component])
            yield NinferError(
                f"component {component} is incomplete: {wanted - len(names)} of {wanted} tensors "
                f"found, without {name_some(absent)}", path=source.label,
                remedy=_remedy(component, absent),
            )  # fmt: skip


def _unreadable(checkpoint: Checkpoint) -> set[str]:
    """Return the weights, by their unquantised names, that lie in files that cannot be read."""
    names = checkpoint.unreadable
    return {*names, *(f"{name.rpartition('.')[0]}.weight" for name in names)}


def _remedy(component: str, names: Collection[str]) -> str | None:
    if component != "text":
        return _REMEDIES[component]
    if any(name.endswith("lm_head.weight") for name in names):
        return (
            "config.json says tie_word_embeddings false; get the missing lm_head.weight, or say "
            "true if the head is the embedding"
        )
    return None


def _prefers(found: ParameterSource | NinferError, parameter: Parameter) -> bool:
    """Return whether what the quantised checkpoint has goes before the base's.

    Its norms and small tensors belong to its matrices: a smoothing quantiser changes both.
    """
    if isinstance(found, NinferError):
        return True
    text = parameter.residency == "text" and parameter.name != _EMBEDDING
    return found.kind != DIRECT or text
