"""Control tokens that a client spells in its text: they stay text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Noncharacters: never part of a text that is exchanged; a client's own are dropped.
_BEGIN, _END = "\ufdd0", "\ufdd1"


@dataclass(frozen=True)
class Segment:
    """A stretch of a rendered prompt; a `literal` one must not become a control token."""

    text: str
    literal: bool


class ControlTokens:
    """Marks control tokens in messages before rendering and finds the marks afterwards.

    `added` is every added token, `special` those of them that a template writes around turns and
    media. The assistant's own text may hold the others: reasoning and calls as it made them.
    """

    def __init__(self, added: Collection[str], special: Collection[str]) -> None:
        self._added, self._special = _pattern(added), _pattern(special)
        marks = f"[{_BEGIN}{_END}]"
        self._marked = re.compile(f"{_BEGIN}({self._added.pattern}){_END}|{marks}")
        self._suspect = re.compile(f"{self._added.pattern}|{marks}")

    def mark(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
    ) -> tuple[list[Any], list[Any] | None]:
        """Return messages and tools with the control tokens in their texts marked."""
        if not any(self._suspect.search(text) for text in _texts([messages, tools])):
            return list(messages), None if tools is None else list(tools)
        marked = [self._mark_message(message) for message in messages]
        return marked, None if tools is None else _map_texts(list(tools), self._mark_all)

    def split(self, rendered: str) -> list[Segment]:
        """Return the segments of a rendered prompt; marks are gone from it."""
        parts = self._marked.split(rendered)
        # Odd parts are marked tokens, None where the template tore a pair of marks apart.
        segments = [Segment(part or "", i % 2 == 1) for i, part in enumerate(parts)]
        return [segment for segment in segments if segment.text]

    def _mark_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        own = message.get("role") == "assistant"
        mark = self._mark_special if own else self._mark_all
        return {
            key: value if key == "role" else _map_texts(value, mark)
            for key, value in message.items()
        }

    def _mark_all(self, text: str) -> str:
        return _mark(self._added, text)

    def _mark_special(self, text: str) -> str:
        return _mark(self._special, text)


def _pattern(tokens: Collection[str]) -> re.Pattern[str]:
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def _mark(pattern: re.Pattern[str], text: str) -> str:
    clean = text.replace(_BEGIN, "").replace(_END, "")
    return pattern.sub(lambda found: f"{_BEGIN}{found[0]}{_END}", clean)


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _map_texts(value: Any, change: Any) -> Any:
    """Return the value with every text in it changed; keys of objects are names and stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _map_texts(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_texts(item, change) for item in value]
    return value
