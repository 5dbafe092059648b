"""Tool calls as pieces of JSON while their arguments come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ninfer_runtime.frontend.tool_calls.argument_values import escape, quote
from ninfer_runtime.frontend.tool_calls.call_delta import CallDelta


@dataclass(frozen=True)
class CallPiece:
    """A piece of a call without a number: its `name` first, then `arguments`, `closed` last."""

    name: str | None = None
    arguments: str = ""
    closed: bool = False


class CallWriter:
    """Writes one call after another; the object stays open until `close`, so that what was cut
    is never valid JSON. `take` hands out the pieces since."""

    def __init__(self) -> None:
        self._pieces: list[CallPiece] = []
        self._parts: list[str] = []
        self._empty = True
        self.closed_calls = 0
        self.open = False

    def begin(self, name: str) -> None:
        self._pieces.append(CallPiece(name=name))
        # At once: no arguments at all would pass for a call without any.
        self._parts.append("{")
        self.open, self._empty = True, True

    def value(self, key: str, json_text: str) -> None:
        self._key(key)
        self._parts.append(json_text)

    def begin_text(self, key: str) -> None:
        self._key(key)
        self._parts.append('"')

    def text(self, text: str) -> None:
        self._parts.append(escape(text))

    def end_text(self) -> None:
        self._parts.append('"')

    def close(self) -> None:
        self._parts.append("}")
        self._flush()
        self._pieces.append(CallPiece(closed=True))
        self.open = False
        self.closed_calls += 1

    def take(self) -> list[CallPiece]:
        self._flush()
        pieces, self._pieces = self._pieces, []
        return pieces

    def _key(self, key: str) -> None:
        self._parts.append(f"{quote(key)}: " if self._empty else f", {quote(key)}: ")
        self._empty = False

    def _flush(self) -> None:
        if self._parts:
            self._pieces.append(CallPiece(arguments="".join(self._parts)))
            self._parts = []


class CallNumbering:
    """Gives calls their numbers and ids; without `parallel` only the first is handed out."""

    def __init__(self, parallel: bool, new_id: Callable[[], str]) -> None:
        self._parallel, self._new_id = parallel, new_id
        self._begun = 0
        self.complete = 0

    def number(self, pieces: list[CallPiece]) -> tuple[CallDelta, ...]:
        deltas = []
        for piece in pieces:
            self._begun += piece.name is not None
            if not self._parallel and self._begun > 1:
                continue
            index = self._begun - 1
            if piece.name is not None:
                deltas.append(CallDelta(index, self._new_id(), piece.name))
            elif piece.arguments:
                deltas.append(CallDelta(index, arguments=piece.arguments))
            self.complete += piece.closed
        return tuple(deltas)
