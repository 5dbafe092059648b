"""Parents, bindings, uses and activation divisors of assigned parameters (rules V-30 to V-34)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import (
    A16_ONLY,
    ALLOW_A4,
    ALLOW_A8,
    INPUT_DIVISOR,
    Binding,
    Part,
    Use,
)
from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.packing import Parent
from ninfer_formats.inventories.parameters import Parameter
from ninfer_tools.convert.recipes.choices import Choices, UseChoice
from ninfer_tools.convert.recipes.grouping import pack_with_groups
from ninfer_tools.convert.rules import IMPORT, Assignment
from ninfer_tools.convert.sources.parameter_source import ParameterSource

_EMBEDDING, _HEAD = "text/token_embedding", "text/output_head"
_NO_AUXILIARIES: Mapping[str, Binding] = MappingProxyType({})
_NO_CHOICES = Choices()


@dataclass(frozen=True)
class Inventory:
    """What is stored. `divisors` has the value of every auxiliary object, in file order."""

    parents: tuple[Parent, ...]
    divisors: Mapping[str, np.float32]
    bindings: Mapping[str, Binding]
    uses: tuple[Use, ...]


def build_inventory(
    parameters: Sequence[Parameter],
    assigned: Mapping[str, Assignment],
    sources: Mapping[str, ParameterSource],
    tied: bool,
    separate: frozenset[str],
    choices: Choices = _NO_CHOICES,
) -> Inventory:
    """Return the inventory; `separate` are roles that are never packed.

    Raises UsageError for a chosen policy or divisor that does not fit the weight's format.
    """
    shared = {p.name: p.alias_of for p in parameters if p.alias_of is not None}
    grouped = {name for group in choices.groups for name in group}
    if tied and not {_EMBEDDING, _HEAD} & {*shared, *grouped}:
        ends = [(assigned[n].format, choices.computed.get(n)) for n in (_EMBEDDING, _HEAD)]
        if ends[0] == ends[1]:
            shared[_HEAD] = _EMBEDDING
    own = [p for p in parameters if p.name not in shared]
    formats = {p.name: assigned[p.name].format for p in parameters}
    # A key of its own keeps a parameter out of every group.
    keys: dict[str, object] = {name: name for name in choices.separate}
    keys |= {
        p.name: _packing_key(assigned[p.name], sources.get(p.name))
        for p in own if p.name not in keys
    }  # fmt: skip
    parents = pack_with_groups(own, formats, separate, keys, choices.groups)
    uses, divisors = _list_uses(parameters, assigned, sources, choices)
    return Inventory(parents, divisors, _bind(parameters, parents, shared), uses)


def _packing_key(assignment: Assignment, source: ParameterSource | None) -> object:
    """Return what must be equal within a parent: the method, and the divisor of stored codes."""
    if assignment.method == IMPORT and assignment.format == nf.NVFP4 and source is not None:
        divisor = source.weight_divisor
        return IMPORT, None if divisor is None else divisor.tobytes()
    return assignment.method


def _bind(
    parameters: Sequence[Parameter], parents: Sequence[Parent], shared: Mapping[str, str]
) -> dict[str, Binding]:
    found = {
        name: Binding((Part(parent.id, begin, end),), len(parent.ranges) == 1)
        for parent in parents
        for name, begin, end in parent.ranges
    }
    bindings = {p.name: found[p.name] for p in parameters if p.name not in shared}
    # A recipe may share with a tied head, which itself shares.
    ends = {name: shared.get(target, target) for name, target in shared.items()}
    return bindings | {name: found[target] for name, target in ends.items()}


def _list_uses(
    parameters: Sequence[Parameter],
    assigned: Mapping[str, Assignment],
    sources: Mapping[str, ParameterSource],
    choices: Choices,
) -> tuple[tuple[Use, ...], dict[str, np.float32]]:
    uses: list[Use] = []
    divisors: dict[str, np.float32] = {}
    for p in parameters:
        stored = _input_divisor(p, assigned[p.name], sources) if p.inputs else None
        format = assigned[p.name].format
        for site in p.inputs:
            choice = choices.uses.get((p.name, site))
            policy, divisor = _policy(format, stored), stored
            if choice is not None:
                policy, divisor = _follow(choice, format, stored, f"{p.name} @ {site}")
            roles = _NO_AUXILIARIES
            if divisor is not None:
                id = f"auxiliary/{len(divisors):06d}"
                divisors[id] = divisor
                roles = MappingProxyType({INPUT_DIVISOR: Binding((Part(id, 0, 1),), True)})
            uses.append(Use(p.name, site, policy, roles))
    return tuple(uses), divisors


def _follow(
    choice: UseChoice, format: str, stored: np.float32 | None, where: str
) -> tuple[str, np.float32 | None]:
    """Return policy and divisor; only products that may run in four bits keep a divisor."""
    if choice.divisor is not None and format != nf.NVFP4:
        raise UsageError(
            f"{INPUT_DIVISOR} belongs to nvfp4 weights", where=where, got=format, want=nf.NVFP4
        )
    divisor = stored if choice.divisor is None else choice.divisor
    policy = choice.policy or _policy(format, divisor)
    if policy != ALLOW_A4:
        return policy, None
    if format == nf.NVFP4 and divisor is None:
        raise UsageError(f"{ALLOW_A4} on nvfp4 needs an {INPUT_DIVISOR}", where=where)
    return policy, divisor


def _input_divisor(
    p: Parameter, assignment: Assignment, sources: Mapping[str, ParameterSource]
) -> np.float32 | None:
    source = sources.get(p.name)
    return source.input_divisor if source and assignment.format == nf.NVFP4 else None


def _policy(format: str, divisor: np.float32 | None) -> str:
    if divisor is not None:
        return ALLOW_A4
    return ALLOW_A8 if format == nf.FP8 else A16_ONLY
