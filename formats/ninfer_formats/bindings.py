"""Bindings and uses of a version 3 directory: checked at open, made into records on access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ninfer_formats.directory import ACTIVATION_POLICIES, Binding, Part, Use
from ninfer_formats.errors import ArtifactError
from ninfer_formats.object_records import check_members, read_id

_USE = frozenset({"parameter", "input"})
_USE_OPTIONAL = frozenset({"activation_policy", "auxiliaries"})

# A binding before anyone asks for it: an object id, or the JSON list of parts, both checked.
RawBinding = str | list[dict[str, Any]]


class LazyBindings(Mapping[str, Binding]):
    """Bindings by parameter name, made into records on access: a mixture-of-experts directory
    has tens of thousands and most callers look at a few."""

    def __init__(self, raw: dict[str, RawBinding], counts: Mapping[str, int]) -> None:
        self._raw, self._counts = raw, counts

    def __getitem__(self, name: str) -> Binding:
        return make_binding(self._raw[name], self._counts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __contains__(self, name: object) -> bool:
        return name in self._raw


def make_binding(raw: RawBinding, counts: Mapping[str, int]) -> Binding:
    """Return the record of a checked binding."""
    if isinstance(raw, str):
        return Binding((Part(raw, 0, counts[raw]),), whole=True)
    return Binding(tuple(Part(part["object"], *part["range"]) for part in raw), whole=False)


def make_use(raw: Mapping[str, Any], counts: Mapping[str, int]) -> Use:
    """Return the record of a checked use."""
    auxiliaries = {
        role: make_binding(value.get("object") or value["parts"], counts)
        for role, value in raw.get("auxiliaries", {}).items()
    }
    return Use(raw["parameter"], raw["input"], raw.get("activation_policy"), auxiliaries)


def read_bindings(value: Any, counts: Mapping[str, int]) -> dict[str, RawBinding]:
    if type(value) is not dict:
        raise ArtifactError("not an object", where="bindings", got=type(value).__name__)
    if "" in value or any("\0" in name for name in value):
        raise ArtifactError("not a legal parameter name", where="bindings")
    return {name: _check_binding(raw, counts, name) for name, raw in value.items()}


def _check_binding(value: Any, counts: Mapping[str, int], name: str) -> RawBinding:
    """Check one binding; this runs tens of thousands of times, so the good path is short."""
    if type(value) is dict and len(value) == 1:
        target = value.get("object")
        if type(target) is str and target in counts:
            return target
        parts = value.get("parts")
        if type(parts) is list and parts:
            for part in parts:
                _check_part(part, counts, name)
            return parts
    raise ArtifactError(
        "binding is not legal",
        where=f"binding {name}",
        got=value,
        want="one of `object` (an existing tensor) and `parts` (nonempty)",
    )


def _check_part(part: Any, counts: Mapping[str, int], name: str) -> None:
    if type(part) is dict and len(part) == 2:
        target, span = part.get("object"), part.get("range")
        if type(target) is str and target in counts and type(span) is list and len(span) == 2:
            begin, end = span
            if type(begin) is int and type(end) is int and 0 <= begin < end <= counts[target]:
                return
    raise ArtifactError(
        "binding part is not legal",
        where=f"binding {name}",
        got=part,
        want="an existing tensor and 0 <= begin < end <= its element count",
    )


def check_uses(value: Any, bindings: Mapping[str, Any], counts: Mapping[str, int]) -> list[Any]:
    if type(value) is not list:
        raise ArtifactError("not an array", where="uses", got=type(value).__name__)
    seen = set()
    for index, use in enumerate(value):
        if type(use) is not dict or not use.keys() >= _USE:
            check_members(use, "uses", index, required=_USE, optional=_USE_OPTIONAL)
        parameter, site = use["parameter"], use["input"]
        if type(parameter) is not str or parameter not in bindings:
            raise ArtifactError(
                "use of a parameter that is not bound", where=f"uses[{index}]", got=parameter
            )
        if type(site) is not str or not site or "\0" in site:
            read_id(site, f"uses[{index}] input")
        if (parameter, site) in seen:
            raise ArtifactError(
                "use is given twice", where=f"uses[{index}]", got=f"{parameter} @ {site}"
            )
        seen.add((parameter, site))
        if len(use) > 2:
            _check_use_options(use, f"uses[{index}]", counts)
    return value


def _check_use_options(use: dict[str, Any], where: str, counts: Mapping[str, int]) -> None:
    rest = len(use) - 2
    if "activation_policy" in use:
        rest -= 1
        if use["activation_policy"] not in ACTIVATION_POLICIES:
            raise ArtifactError(
                "unknown activation policy",
                where=where,
                got=use["activation_policy"],
                want=", ".join(ACTIVATION_POLICIES),
            )
    if "auxiliaries" in use:
        rest -= 1
        if type(use["auxiliaries"]) is not dict:
            raise ArtifactError("not an object", where=f"{where} auxiliaries")
        for role, value in use["auxiliaries"].items():
            _check_binding(value, counts, f"{read_id(role, where)} of {where}")
    if rest:
        check_members(use, where, required=_USE, optional=_USE_OPTIONAL)
