"""Recipes: Python files that choose formats, policies, sharing and packing (rules V-80 to V-89)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.encoding import METHODS
from ninfer_formats.directory import ACTIVATION_POLICIES
from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.parameters import Parameter
from ninfer_tools.convert.recipes.choices import Choices, Computed, UseChoice
from ninfer_tools.convert.recipes.grouping import check_group
from ninfer_tools.convert.recipes.model import Model, SourceLabels, describe_parameter
from ninfer_tools.convert.recipes.recipe_file import (
    RecipeError,
    RecipeFile,
    explain,
    read_divisor,
    refuse_unrun,
)
from ninfer_tools.convert.rules import IMPORT, Assignment, choose_format, read_format
from ninfer_tools.convert.sources.parameter_source import ParameterSource

ORIGIN = "recipe"
Selectors = str | Iterable[str]
Function = Callable[[Any], Any]


@dataclass(frozen=True)
class _Fields:
    """What `assign` was given for one parameter so far."""

    format: str | None = None
    method: str | None = None
    computed: Computed | None = None


class Recipe:
    """What the function of a recipe calls; every call is checked when it is made."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        assigned: Mapping[str, Assignment],
        sources: Mapping[str, ParameterSource],
        file: RecipeFile,
    ) -> None:
        self._parameters = {p.name: p for p in parameters}
        self._before, self._sources, self._file = assigned, sources, file
        self._assigned: dict[str, Assignment] = {}
        self._fields: dict[str, _Fields] = {}
        self._uses: dict[tuple[str, str], UseChoice] = {}
        self._shared: dict[str, str] = {}
        self._separate: set[str] = set()
        self._groups: list[tuple[str, ...]] = []

    def match(self, selectors: Selectors) -> tuple[str, ...]:
        """Return the names that selectors reach, as the other calls understand them."""
        return tuple(p.name for p in self._select(selectors))

    def assign(
        self,
        selectors: Selectors,
        *,
        format: str | None = None,
        method: str | Function | None = None,
        codes: Function | None = None,
        activation_policy: str | None = None,
    ) -> None:
        """Set what is given for every selected parameter; what is not given stays.

        A function as `method` computes the values that are then encoded, one as `codes` computes
        codes and scales of the format itself.
        """
        given = (format, method, codes, activation_policy)
        if all(item is None for item in given):
            raise UsageError("nothing to assign", want="format, method, codes, activation_policy")
        fields = self._read_fields(format, method, codes)
        policy = _check_policy(activation_policy)
        for p in self._select(selectors):
            if fields != _Fields():
                self._assign(p, fields)
            if policy is not None and not p.inputs:
                raise UsageError("only projections have an activation policy", where=p.name)
            for site in p.inputs if policy is not None else ():
                self._choose(p.name, site, policy=policy)

    def use(
        self,
        parameter: str,
        input: str,
        *,
        activation_policy: str | None = None,
        activation_input_divisor: float | None = None,
    ) -> None:
        """Set policy or divisor of one product; a divisor alone makes an NVFP4 weight AllowA4."""
        if activation_policy is None and activation_input_divisor is None:
            raise UsageError("nothing to set", want="activation_policy, activation_input_divisor")
        p = self._find(parameter)
        if input not in p.inputs:
            want = ", ".join(p.inputs) or "a projection"
            raise UsageError("parameter has no such input", where=p.name, got=input, want=want)
        if activation_policy is not None:
            self._choose(p.name, input, policy=_check_policy(activation_policy))
        if activation_input_divisor is not None:
            divisor = _check_divisor(activation_input_divisor)
            self._choose(p.name, input, divisor=divisor)

    def share(self, parameter: str, target: str) -> None:
        """Let `parameter` take the elements of `target`; its own tensor is not stored."""
        p, other = self._find(parameter), self._find(target)
        if p.shape != other.shape:
            raise UsageError(
                "shared parameters have one shape", where=p.name,
                got=list(p.shape), want=list(other.shape),
            )  # fmt: skip
        if target == parameter or target in self._shared or parameter in self._shared.values():
            raise UsageError("parameters are shared in a chain", where=p.name, got=target)
        self._shared[parameter] = target

    def separate(self, selectors: Selectors) -> None:
        """Store every selected parameter in a tensor of its own."""
        self._separate.update(p.name for p in self._select(selectors))

    def group(self, selectors: Selectors) -> None:
        """Store the selected parameters in one tensor, in the order they are selected in."""
        members = self._select(selectors)
        check_group(members)
        grouped = {name for group in self._groups for name in group}
        for p in members:
            if p.name in grouped:
                raise UsageError("parameter is in two groups", got=p.name)
        self._groups.append(tuple(p.name for p in members))

    def choices(self) -> Choices:
        """Return everything chosen so far; UsageError where choices contradict each other."""
        computed = {n: f.computed for n, f in self._fields.items() if f.computed is not None}
        grouped = {name for group in self._groups for name in group}
        for names, what in (
            (grouped & self._separate, "parameter is grouped and separate"),
            (grouped & self._shared.keys(), "parameter is grouped and shares another's elements"),
            (computed.keys() & self._shared.keys(), "parameter is computed and shares another's"),
        ):
            if names:
                raise UsageError(what, got=min(names))
        # The divisor of computed codes is not known while tensors are planned.
        apart = {name for name, item in computed.items() if item.gives_codes} - grouped
        return Choices(
            dict(self._assigned), dict(self._uses), dict(self._shared),
            frozenset(self._separate | apart), tuple(self._groups), computed,
        )  # fmt: skip

    def _select(self, selectors: Selectors) -> list[Parameter]:
        found: dict[str, Parameter] = {}
        for selector in [selectors] if isinstance(selectors, str) else selectors:
            if selector in self._parameters:
                found[selector] = self._find(selector)
                continue
            free = (p for p in self._parameters.values() if _has_values(p))
            reached = {p.name: p for p in free if fnmatchcase(p.name, selector)}
            if not reached:
                raise UsageError("selector reaches no parameter", got=selector)
            found |= reached
        if not found:
            raise UsageError("no selector is given", got=selectors)
        return list(found.values())

    def _find(self, name: str) -> Parameter:
        p = self._parameters.get(name)
        if p is None:
            raise UsageError("model has no such parameter", got=name)
        if not _has_values(p):
            raise UsageError("parameter has no values of its own", got=name)
        return p

    def _read_fields(
        self, format: str | None, method: str | Function | None, codes: Function | None
    ) -> _Fields:
        chosen = None if format is None else read_format(format)
        if method is not None and codes is not None:
            raise UsageError("method and codes contradict each other")
        function = codes if codes is not None else method
        if function is None or isinstance(function, str):
            return _Fields(chosen, function)
        if not callable(function):
            raise UsageError("no function", got=repr(function)[:80], want="a function of one block")
        return _Fields(chosen, None, Computed(function, codes is not None, self._file))

    def _assign(self, p: Parameter, new: _Fields) -> None:
        old = self._fields.get(p.name, _Fields())
        fields = replace(new, format=new.format or old.format)
        if new.method is None and new.computed is None:
            fields = replace(fields, method=old.method, computed=old.computed)
        format = fields.format or self._before[p.name].format
        self._fields[p.name] = fields
        if fields.computed is not None:
            self._assigned[p.name] = _assign_computed(p, format, fields.computed)
            return
        if fields.method is not None and fields.method not in METHODS[format]:
            want = ", ".join(METHODS[format])
            raise UsageError(f"no method of {format}", where=p.name, got=fields.method, want=want)
        source = self._sources.get(p.name)
        self._assigned[p.name] = choose_format(p, source, format, fields.method, ORIGIN)

    def _choose(self, name: str, site: str, **fields: Any) -> None:
        self._uses[name, site] = replace(self._uses.get((name, site), UseChoice()), **fields)


def apply_recipe(
    file: RecipeFile,
    parameters: Sequence[Parameter],
    assigned: Mapping[str, Assignment],
    sources: Mapping[str, ParameterSource],
    config: Mapping[str, Any],
    components: tuple[str, ...],
    labels: Mapping[str, str],
    packing_groups: tuple[tuple[str, ...], ...] = (),
) -> Choices:
    """Run a recipe's function as `function(model, recipe, sources)` and return what it chose.

    `assigned` is what parameters get without it. Raises RecipeError for whatever goes wrong in it.
    """
    seen = {p.name: describe_parameter(p, assigned[p.name].format) for p in parameters}
    model = Model(MappingProxyType(seen), deepcopy(dict(config)), components, packing_groups)
    recipe = Recipe(parameters, assigned, sources, file)
    space: dict[str, Any] = {"__name__": file.path.stem, "__file__": str(file.path)}
    try:
        exec(compile(file.text, str(file.path), "exec", dont_inherit=True), space)
        function = space.get(file.function)
        if not callable(function):
            raise RecipeError("recipe has no such function", path=file.path, got=file.function)
        refuse_unrun(function(model, recipe, SourceLabels(labels)))
        return recipe.choices()
    except RecipeError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a recipe may end itself by SystemExit and the like
        raise explain(error, file.path) from error


def _assign_computed(p: Parameter, format: str, computed: Computed) -> Assignment:
    origin = f"{ORIGIN}: {computed.name}"
    # Without a source, because stored codes are not what is encoded.
    found = choose_format(p, None, format, None, origin)
    if not computed.gives_codes:
        return found
    if METHODS[format] == ("cast",):
        raise UsageError("format has no codes and scales", where=p.name, got=format)
    return replace(found, method=IMPORT)


def _has_values(p: Parameter) -> bool:
    return p.alias_of is None and p.direct_format != nf.INT32


def _check_policy(policy: str | None) -> str | None:
    if policy is not None and policy not in ACTIVATION_POLICIES:
        want = ", ".join(ACTIVATION_POLICIES)
        raise UsageError("unknown activation policy", got=policy, want=want)
    return policy


def _check_divisor(value: float) -> np.float32:
    with np.errstate(over="ignore"):
        divisor = np.float32(read_divisor(value))
    if not math.isfinite(divisor) or divisor <= 0:
        raise UsageError("impossible activation_input_divisor", got=value, want="finite, above 0")
    return divisor
