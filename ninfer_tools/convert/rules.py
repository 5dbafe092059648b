"""Which format and method every parameter gets (rules V-10 to V-16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.encoding import METHODS
from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.parameters import Parameter
from ninfer_formats.inventories.profiles import Profile
from ninfer_tools.convert.sources.parameter_source import ParameterSource
from ninfer_tools.convert.sources.quantization import DIRECT

IMPORT = "import"
_SHORT_NAMES = {"q4": nf.Q4, "q5": nf.Q5, "q6": nf.Q6, "q8": nf.Q8, "fp8": nf.FP8}
_EMBEDDINGS = ("token_embedding", "predecessor_codebook", "successor_codebook")
_SETTABLE = {name: name for name in METHODS if name != nf.INT32} | _SHORT_NAMES
# The best method of each format, where it is not the first one.
_PREFERRED = {nf.NVFP4: "search"}
_NOTHING: Mapping[str, Assignment] = MappingProxyType({})


@dataclass(frozen=True)
class FormatRule:
    """`GLOB=format[:method]`: parameters whose name matches get this format."""

    text: str
    glob: str
    format: str
    method: str | None

    def reaches(self, parameter: Parameter) -> bool:
        """A glob reaches the matrices that profiles quantise, an exact name any parameter."""
        if parameter.name == self.glob:
            return True
        matrix = bool(parameter.inputs) or parameter.role.endswith(_EMBEDDINGS)
        return matrix and fnmatchcase(parameter.name, self.glob)


@dataclass(frozen=True)
class Assignment:
    """Format and method of one parameter; `origin` is profile, source or the rule's text."""

    format: str
    method: str
    origin: str


def parse_rule(text: str) -> FormatRule:
    """Return the rule `GLOB=format[:method]`; UsageError for unknown formats and methods."""
    glob, sign, target = text.rpartition("=")
    name, _, method = target.partition(":")
    format = _SETTABLE.get(name)
    if not sign or not glob or format is None:
        want = f"GLOB=FORMAT[:METHOD] with FORMAT one of {', '.join(_SETTABLE)}"
        raise UsageError("--set is not understood", got=text, want=want)
    if method and method not in METHODS[format]:
        raise UsageError(f"unknown method for {name}", got=method, want=", ".join(METHODS[format]))
    return FormatRule(text, glob, format, method or None)


def read_format(name: str) -> str:
    """Return the canonical name of a format that can be chosen; UsageError for others."""
    if name not in _SETTABLE:
        raise UsageError("unknown format", got=name, want=", ".join(_SETTABLE))
    return _SETTABLE[name]


def assign_formats(
    parameters: Sequence[Parameter],
    profile: Profile,
    sources: Mapping[str, ParameterSource],
    rules: Sequence[FormatRule],
    chosen: Mapping[str, Assignment] = _NOTHING,
) -> dict[str, Assignment]:
    """Return the assignment of every parameter: profile, stored codes, `chosen`, the last rule.

    Raises UsageError for a rule that reaches no parameter, or a matrix format on something else.
    """
    found = {p.name: _assign(p, profile, sources.get(p.name)) for p in parameters}
    found |= chosen
    for rule in rules:
        reached = [p for p in parameters if _is_free(p) and rule.reaches(p)]
        if not reached:
            raise UsageError("--set reaches no parameter", got=rule.text)
        for p in reached:
            source = sources.get(p.name)
            found[p.name] = choose_format(p, source, rule.format, rule.method, rule.text)
    shared = {p.name: found[p.alias_of] for p in parameters if p.alias_of is not None}
    return found | shared


def _is_free(parameter: Parameter) -> bool:
    return parameter.alias_of is None and parameter.direct_format != nf.INT32


def _assign(p: Parameter, profile: Profile, source: ParameterSource | None) -> Assignment:
    taken = _import_format(p, source)
    if taken is not None:
        return Assignment(taken, IMPORT, "source")
    format = profile.assign(p).format
    return Assignment(format, _default_method(format), "profile")


def choose_format(
    p: Parameter, source: ParameterSource | None, format: str, method: str | None, origin: str
) -> Assignment:
    """Return the assignment of a format that was asked for; stored codes in it are kept.

    Raises UsageError for a matrix format on something else, and for a method on stored codes.
    """
    if METHODS[format] != ("cast",) and len(p.shape) != 2:
        raise UsageError(
            f"{format} holds matrices only", where=p.name, got=list(p.shape), want="[N, K]"
        )
    if _import_format(p, source) == format:
        if method is not None:
            raise UsageError(
                "the source holds this format already and its codes are taken over untouched",
                where=p.name, got=f"{format}:{method}", remedy=f"ask for {format} without a method",
            )  # fmt: skip
        return Assignment(format, IMPORT, origin)
    return Assignment(format, method or _default_method(format), origin)


def _import_format(p: Parameter, source: ParameterSource | None) -> str | None:
    # Rows of a proposal head are picked to be small: they are always encoded.
    if source is None or source.kind == DIRECT or p.residency == "proposal":
        return None
    return source.import_format


def _default_method(format: str) -> str:
    return _PREFERRED[format] if format in _PREFERRED else METHODS[format][0]
