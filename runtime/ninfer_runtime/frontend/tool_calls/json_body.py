"""A call, or its arguments, as JSON instead of tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ninfer_runtime.frontend.tool_calls.argument_values import UNREADABLE, read_json, read_literal

_TURN = re.compile(r'["\\{}\[\]]')
_MOST_MISSING = 3
_LEAST = 7  # characters of an object with a name, without its last bracket


class JsonBody:
    """Gathers one object; knows where it ends without reading it again."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._depth = 0
        self._in_text = False
        self._escaped = False

    @property
    def in_text(self) -> bool:
        """Whether what comes next is inside a string, tags included."""
        return self._in_text

    @property
    def raw(self) -> str:
        return "".join(self._parts)

    def add(self, text: str) -> str | None:
        """Take text; return what follows the object once it is complete, else None."""
        position = 0
        if self._escaped and text:
            self._escaped, position = False, 1
        while (found := _TURN.search(text, position)) is not None:
            position = found.end()
            mark = found[0]
            if mark == "\\":
                position += self._in_text
                self._escaped = position > len(text)
            elif mark == '"':
                self._in_text = not self._in_text
            elif not self._in_text:
                self._depth += 1 if mark in "{[" else -1
                if self._depth <= 0:
                    self._parts.append(text[:position])
                    return text[position:]
        self._parts.append(text)
        return None

    def read(self) -> Any:
        """Return the object, also one that lacks the last brackets; UNREADABLE without one."""
        raw = self.raw.strip()
        if self._depth > 0 and len(raw) < _LEAST:
            return UNREADABLE
        value = read_literal(raw)
        for _ in range(_MOST_MISSING):
            if value is not UNREADABLE:
                break
            raw += "}"
            value = read_literal(raw)
        return value if isinstance(value, Mapping) else UNREADABLE


def read_call(value: Any) -> tuple[str, Mapping[str, Any]] | None:
    """Return name and arguments of an object that describes a call, None for any other."""
    if not isinstance(value, Mapping):
        return None
    if isinstance(inner := value.get("function"), Mapping):
        value = inner
    name = value.get("name", value.get("function"))
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = read_json(arguments)
    if not isinstance(name, str) or not name.strip() or not isinstance(arguments, Mapping):
        return None
    return name.strip(), arguments
