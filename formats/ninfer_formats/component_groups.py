"""The groups of a version 3 file against the inventory that its component configs ask for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import Binding, Tensor
from ninfer_formats.errors import ArtifactError, NinferError
from ninfer_formats.group_state import GroupState
from ninfer_formats.inventories.component_configs import (
    geometry_from_components,
)
from ninfer_formats.inventories.config_reading import ConfigReader
from ninfer_formats.inventories.geometry import DrafterGeometry, ModelGeometry
from ninfer_formats.inventories.legacy import GROUPS
from ninfer_formats.inventories.legacy_tables import FRONTEND_RESOURCES
from ninfer_formats.inventories.parameters import Parameter, list_parameters
from ninfer_formats.ownership import group_of, is_known

if TYPE_CHECKING:
    from ninfer_formats.reader import Artifact

TEXT_ARCHITECTURES = tuple(
    f"Qwen3_5{moe}For{task}"
    for moe in ("", "Moe")
    for task in ("CausalLM", "ConditionalGeneration")
)
_NOT_DECLARED = "has parameters, but no component declares it"


@dataclass(frozen=True)
class ConfigReading:
    """What the component configs say: `geometry` of everything readable (None without a readable
    text config), every drafter, and why the other components cannot be read."""

    geometry: ModelGeometry | None
    drafters: Mapping[str, DrafterGeometry]
    reasons: Mapping[str, str]


def read_configs(configs: Mapping[str, Mapping[str, Any]]) -> ConfigReading:
    """Read the configs of known components one by one, so that one bad config spoils no other."""
    reasons: dict[str, str] = {}
    text = _try_geometry(configs, ("text",), reasons)
    others = [name for name in GROUPS[1:] if name in configs]
    if text is None:
        reasons |= dict.fromkeys(others, "the text config cannot be read")
        return ConfigReading(None, {}, reasons)
    geometry = replace(text, mtp="mtp" in configs)
    drafters = {}
    for name in others:
        found = _try_geometry(configs, ("text", name), reasons)
        if found is not None and found.vision is not None:
            geometry = replace(geometry, vision=found.vision)
        if found is not None and found.drafter is not None:
            drafters[name] = found.drafter
    return ConfigReading(
        replace(geometry, drafter=next(iter(drafters.values()), None)), drafters, reasons
    )


def _try_geometry(
    configs: Mapping[str, Mapping[str, Any]], names: tuple[str, ...], reasons: dict[str, str]
) -> ModelGeometry | None:
    try:
        if names == ("text",):
            _check_architecture(configs.get("text"))
        return geometry_from_components({name: configs[name] for name in names if name in configs})
    except ArtifactError as error:
        reasons[names[-1]] = str(error)
        return None


def _check_architecture(config: Mapping[str, Any] | None) -> None:
    found = ConfigReader("text", config, ArtifactError).first_string("architectures")
    if found is not None and found not in TEXT_ARCHITECTURES:
        raise ArtifactError(
            "unknown architecture",
            where="text.architectures",
            got=found,
            want=", ".join(TEXT_ARCHITECTURES),
        )


def component_groups(
    artifact: Artifact,
    reading: ConfigReading,
    expected: Mapping[str, Sequence[Parameter] | str],
    bindings: Mapping[str, Binding],
) -> tuple[GroupState, ...]:
    """Return the known groups, then unknown ones; counts are left at zero.

    `expected` is what `expected_parameters` returns, `bindings` are those of the artifact.
    """
    bound = dict.fromkeys(group_of(name) for name in bindings)
    states = [
        GroupState(group, "absent", reason=_NOT_DECLARED if group in bound else None)
        if group not in _declared(artifact)
        else _declared_state(group, artifact, reading, expected.get(group), bindings)
        for group in GROUPS
    ]
    for group in dict.fromkeys((*artifact.components, *bound)):
        if not is_known(group):
            states.append(GroupState(group, "unknown", reason="not a group of this release"))
    return tuple(states)


def _declared_state(
    group: str,
    artifact: Artifact,
    reading: ConfigReading,
    expected: Sequence[Parameter] | str | None,
    bindings: Mapping[str, Binding],
) -> GroupState:
    wanted = reading.reasons.get(group) or expected or "the text config cannot be read"
    if isinstance(wanted, str):
        return GroupState(group, "unreadable", reason=wanted)
    missing = [p.name for p in wanted if p.name not in bindings]
    missing += _missing_resources(group, artifact)
    faults = tuple(_find_faults(wanted, artifact, bindings))
    state = "partial" if missing or faults else "complete"
    return GroupState(group, state, tuple(missing), faults)


def _declared(artifact: Artifact) -> set[str]:
    """Return the groups that the components announce; the proposal head is one of text."""
    text = artifact.components.get("text")
    indexed = text is not None and text.proposal is not None and text.proposal.rows is not None
    return {*artifact.components} - {"proposal"} | ({"proposal"} if indexed else set())


def expected_parameters(
    artifact: Artifact, reading: ConfigReading
) -> dict[str, Sequence[Parameter] | str]:
    """Return group -> its parameters, or why they cannot be listed."""
    geometry = reading.geometry
    if geometry is None:
        return {}
    groups: dict[str, Sequence[Parameter] | str] = {}
    try:
        _group(list_parameters(geometry, geometry.components, _proposal_rows(artifact)), groups)
    except NinferError as error:
        # Only the proposal can be at fault: the components are those of the geometry itself.
        _group(list_parameters(geometry, geometry.components), groups)
        groups["proposal"] = str(error)
    for name, drafter in reading.drafters.items():
        if name not in groups:
            other = replace(geometry, drafter=drafter)
            found = list_parameters(other, ("text", name))
            _group((p for p in found if p.residency == name), groups)
    return groups


def _group(parameters: Iterable[Parameter], groups: dict[str, Sequence[Parameter] | str]) -> None:
    found: dict[str, list[Parameter]] = {}
    for p in parameters:
        found.setdefault(p.residency, []).append(p)
    groups.update(found)


def _proposal_rows(artifact: Artifact) -> int | None:
    text = artifact.components.get("text")
    return text.proposal.rows if text is not None and text.proposal is not None else None


def _missing_resources(group: str, artifact: Artifact) -> list[str]:
    roles = artifact.components[group].resources if group in artifact.components else {}
    wanted = [role for _, role, owner in FRONTEND_RESOURCES if owner == group]
    return [f"{group}:{role}" for role in wanted if role not in roles]


def _find_faults(
    parameters: Iterable[Parameter], artifact: Artifact, bindings: Mapping[str, Binding]
) -> Iterator[ArtifactError]:
    for p in parameters:
        binding = bindings.get(p.name)
        fault = None if binding is None else _find_fault(p, binding, artifact)
        if fault is not None:
            yield fault


def _find_fault(p: Parameter, binding: Binding, artifact: Artifact) -> ArtifactError | None:
    where = f"parameter {p.name}"
    first = artifact.objects[binding.parts[0].object]
    if binding.whole and isinstance(first, Tensor) and first.shape != p.shape:
        return ArtifactError(
            "shape is not the one its config asks for",
            where=where,
            got=list(first.shape),
            want=list(p.shape),
        )
    count = sum(part.end - part.begin for part in binding.parts)
    if count != math.prod(p.shape):
        return ArtifactError(
            "element count is not the one its config asks for",
            where=where,
            got=count,
            want=f"{math.prod(p.shape)} = {list(p.shape)}",
        )
    if p.direct_format == nf.INT32 and isinstance(first, Tensor) and first.format != nf.INT32:
        return ArtifactError("values are not integers", where=where, got=first.format, want="int32")
    return None
