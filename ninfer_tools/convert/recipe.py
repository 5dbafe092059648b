"""Recipes: Python files that choose formats, policies, sharing and packing (rules V-80 to V-89)."""

from __future__ import annotations

import hashlib
import math
import traceback
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.encoding import METHODS
from ninfer_formats.directory import ACTIVATION_POLICIES
from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.inventories.parameters import Parameter
from ninfer_tools.convert.rules import Assignment, choose_format, read_format
from ninfer_tools.convert.sources.parameter_source import ParameterSource

DEFAULT_FUNCTION = "configure"
ORIGIN = "recipe"
Selectors = str | Iterable[str]


class RecipeError(UsageError):
    """A recipe cannot be read, or its code fails; `where` is the line."""


@dataclass(frozen=True)
class RecipeFile:
    """The file of a recipe as it was read, and the function to call."""

    path: Path
    function: str
    text: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text).hexdigest()

    def as_record(self) -> dict[str, str]:
        """Return what artifacts say of it: no folder, so that equal conversions stay equal."""
        return {"file": self.path.name, "function": self.function, "sha256": self.sha256}


@dataclass(frozen=True)
class ModelParameter:
    """One parameter as recipes see it.

    `format` is what it gets without the recipe; `inputs` are the input sites it is multiplied with.
    """

    name: str
    shape: tuple[int, ...]
    inputs: tuple[str, ...]
    format: str
    direct_format: str
    residency: str
    layer: int | None

    @property
    def projection(self) -> bool:
        return bool(self.inputs)


@dataclass(frozen=True)
class Model:
    """The model that is converted: parameters by name, config.json, components."""

    parameters: Mapping[str, ModelParameter]
    config: Mapping[str, Any]
    components: tuple[str, ...]


@dataclass(frozen=True)
class UseChoice:
    """What a recipe said of one (parameter, input); None where it said nothing."""

    policy: str | None = None
    divisor: np.float32 | None = None


@dataclass(frozen=True)
class Choices:
    """What a recipe chose; `shared` maps a parameter to the one whose elements it takes."""

    assigned: Mapping[str, Assignment] = field(default_factory=dict)
    uses: Mapping[tuple[str, str], UseChoice] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)
    separate: frozenset[str] = frozenset()


class SourceLabels(dict[str, str]):
    """Folder or pinned reference of every source by name; a missing one names the option."""

    def __missing__(self, name: str) -> str:
        raise UsageError("source is not given", got=name, remedy=f"add --source {name}=SRC")


class Recipe:
    """What the function of a recipe calls; every call is checked when it is made."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        assigned: Mapping[str, Assignment],
        sources: Mapping[str, ParameterSource],
    ) -> None:
        self._parameters = {p.name: p for p in parameters}
        self._before, self._sources = assigned, sources
        self._assigned: dict[str, Assignment] = {}
        self._fields: dict[str, tuple[str | None, str | None]] = {}
        self._uses: dict[tuple[str, str], UseChoice] = {}
        self._shared: dict[str, str] = {}
        self._separate: set[str] = set()

    def assign(
        self,
        selectors: Selectors,
        *,
        format: str | None = None,
        method: str | None = None,
        activation_policy: str | None = None,
    ) -> None:
        """Set what is given for every selected parameter; what is not given stays."""
        if format is None and method is None and activation_policy is None:
            raise UsageError("nothing to assign", want="format, method or activation_policy")
        chosen = None if format is None else read_format(format)
        policy = _check_policy(activation_policy)
        for p in self._select(selectors):
            if chosen is not None or method is not None:
                self._assign(p, chosen, method)
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

    def choices(self) -> Choices:
        """Return everything chosen so far."""
        separate = frozenset(self._separate)
        return Choices(dict(self._assigned), dict(self._uses), dict(self._shared), separate)

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

    def _assign(self, p: Parameter, format: str | None, method: str | None) -> None:
        old = self._fields.get(p.name, (None, None))
        format, method = format or old[0], method or old[1]
        actual = format or self._before[p.name].format
        if method is not None and method not in METHODS[actual]:
            want = ", ".join(METHODS[actual])
            raise UsageError(f"no method of {actual}", where=p.name, got=method, want=want)
        source = self._sources.get(p.name)
        self._assigned[p.name] = choose_format(p, source, actual, method, ORIGIN)
        self._fields[p.name] = (format, method)

    def _choose(self, name: str, site: str, **fields: Any) -> None:
        self._uses[name, site] = replace(self._uses.get((name, site), UseChoice()), **fields)


def read_recipe(text: str) -> RecipeFile:
    """Return the recipe `FILE.py[:func]`; RecipeError when it cannot be read."""
    name, sign, function = text.rpartition(":")
    if not sign or text.endswith(".py"):
        name, function = text, DEFAULT_FUNCTION
    if not name.endswith(".py") or not function.isidentifier():
        raise RecipeError("--recipe is not understood", got=text, want="FILE.py[:FUNCTION]")
    try:
        return RecipeFile(Path(name), function, Path(name).read_bytes())
    except OSError as error:
        raise RecipeError(f"cannot read: {error.strerror}", path=name) from None


def apply_recipe(
    file: RecipeFile,
    parameters: Sequence[Parameter],
    assigned: Mapping[str, Assignment],
    sources: Mapping[str, ParameterSource],
    config: Mapping[str, Any],
    components: tuple[str, ...],
    labels: Mapping[str, str],
) -> Choices:
    """Run a recipe's function as `function(model, recipe, sources)` and return what it chose.

    `assigned` is what parameters get without it. Raises RecipeError for whatever goes wrong in it.
    """
    seen = {p.name: _describe(p, assigned[p.name].format) for p in parameters}
    model = Model(MappingProxyType(seen), deepcopy(dict(config)), components)
    recipe = Recipe(parameters, assigned, sources)
    space: dict[str, Any] = {"__name__": file.path.stem, "__file__": str(file.path)}
    try:
        exec(compile(file.text, str(file.path), "exec", dont_inherit=True), space)
        function = space.get(file.function)
        if not callable(function):
            raise RecipeError("recipe has no such function", path=file.path, got=file.function)
        function(model, recipe, SourceLabels(labels))
    except RecipeError:
        raise
    except (Exception, SystemExit) as error:
        raise _explain(error, file.path) from error
    return recipe.choices()


def _describe(p: Parameter, format: str) -> ModelParameter:
    return ModelParameter(
        p.name, p.shape, p.inputs, format, p.direct_format, p.residency, p.layer
    )  # fmt: skip


def _explain(error: BaseException, path: Path) -> RecipeError:
    """Return the error as one line that names the last line of the recipe that was running."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    where = f"line {lines[-1]}" if lines else None
    if isinstance(error, NinferError):
        what = f"{error.where}: {error.what}" if error.where else error.what
        facts = {"got": error.got, "want": error.want, "remedy": error.remedy}
        return RecipeError(what, path=path, where=where, **facts)
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return RecipeError(f"{type(error).__name__}: {text}", path=path, where=where)


def _has_values(p: Parameter) -> bool:
    return p.alias_of is None and p.direct_format != nf.INT32


def _check_policy(policy: str | None) -> str | None:
    if policy is not None and policy not in ACTIVATION_POLICIES:
        want = ", ".join(ACTIVATION_POLICIES)
        raise UsageError("unknown activation policy", got=policy, want=want)
    return policy


def _check_divisor(value: float) -> np.float32:
    with np.errstate(over="ignore"):
        divisor = np.float32(value)
    if not math.isfinite(divisor) or divisor <= 0:
        raise UsageError("impossible activation_input_divisor", got=value, want="finite, above 0")
    return divisor


def list_notices(choices: Choices) -> list[str]:
    """Return a notice for every shared parameter."""
    return [
        f"{name} takes the elements of {target}: its own tensor is not stored"
        for name, target in choices.shared.items()
    ]
