"""Which kinds of JSON values a schema admits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_MOST_STEPS = 200  # schemas looked at for one parameter: a cycle of references ends here


def admitted_kinds(schema: Any, root: Any) -> frozenset[str] | None:
    """Return the kinds of values that `schema`, a part of `root`, admits; None for any.

    Read are `type`, `enum`, `const`, `nullable`, `anyOf`, `oneOf`, `allOf` and `$ref` into root.
    """
    return _Reading(root).kinds(schema)


def declared_properties(root: Any) -> dict[str, Any]:
    """Return the schemas of a root's properties by name, those behind `$ref` and `allOf` too."""
    found: dict[str, Any] = {}
    _Reading(root).collect(root, found)
    return found


class _Reading:
    def __init__(self, root: Any) -> None:
        self._root, self._steps = root, 0

    def _step(self) -> bool:
        self._steps += 1
        return self._steps <= _MOST_STEPS

    def kinds(self, schema: Any, depth: int = 0) -> frozenset[str] | None:
        if not isinstance(schema, Mapping) or depth > 60 or not self._step():
            return None
        found = None
        for part in self._conditions(schema, depth):
            if part is not None:
                found = part if found is None else found & part
        if found is not None and schema.get("nullable") is True:
            found |= {"null"}
        return found or None

    def _conditions(self, schema: Mapping[str, Any], depth: int) -> list[frozenset[str] | None]:
        conditions = [_stated(schema)]
        if isinstance(reference := schema.get("$ref"), str):
            conditions.append(self.kinds(follow(self._root, reference), depth + 1))
        for key in ("anyOf", "oneOf"):
            if isinstance(branches := schema.get(key), list) and branches:
                parts = [self.kinds(branch, depth + 1) for branch in branches]
                known = [part for part in parts if part is not None]
                whole = len(known) == len(parts)
                conditions.append(frozenset().union(*known) if whole else None)
        if isinstance(branches := schema.get("allOf"), list):
            conditions += [self.kinds(branch, depth + 1) for branch in branches]
        return conditions

    def collect(self, schema: Any, found: dict[str, Any], depth: int = 0) -> None:
        if not isinstance(schema, Mapping) or depth > 60 or not self._step():
            return
        if isinstance(reference := schema.get("$ref"), str):
            self.collect(follow(self._root, reference), found, depth + 1)
        for key in ("allOf", "anyOf", "oneOf"):
            if isinstance(branches := schema.get(key), list):
                for branch in branches:
                    self.collect(branch, found, depth + 1)
        if isinstance(properties := schema.get("properties"), Mapping):
            found.update({str(name): value for name, value in properties.items()})


def follow(root: Any, reference: str) -> Any:
    """Return what a reference into the same document points at, None for any other."""
    if not reference.startswith("#"):
        return None
    place = root
    for name in reference[1:].split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping):
            place = place.get(name)
        elif isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        else:
            return None
    return place


def kind_of(value: Any) -> str:
    """Return the kind of a value of JSON; a whole number is an integer."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "integer" if value == value // 1 else "number"
    return "array" if isinstance(value, list) else "object"


def _stated(schema: Mapping[str, Any]) -> frozenset[str] | None:
    stated = schema.get("type")
    names = [stated] if isinstance(stated, str) else stated if isinstance(stated, list) else []
    kinds = KINDS.intersection(name for name in names if isinstance(name, str))
    if "number" in kinds:
        kinds |= {"integer"}
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values:
        listed = frozenset(kind_of(value) for value in values)
        kinds = kinds & listed or listed
    elif "properties" in schema and not kinds:
        kinds = frozenset({"object"})
    elif "items" in schema and not kinds:
        kinds = frozenset({"array"})
    return kinds or None
