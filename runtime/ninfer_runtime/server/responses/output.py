"""The output of an answer: items one behind the other, made of what comes from the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ninfer_runtime.frontend.tool_calls.call_delta import CallDelta
from ninfer_runtime.server.events import Delta, ScoredToken
from ninfer_runtime.server.responses.output_items import (
    COMPLETED,
    INCOMPLETE,
    CallItem,
    Event,
    MessageItem,
    ReasoningItem,
)


@dataclass
class Output:
    """`items` are those that are done. A whole answer is a stream whose events nobody reads.

    `origin` gives namespace and name of a function by the name the model knows it by.
    """

    origin: Callable[[str], tuple[str | None, str]]
    summarised: bool = False
    sealed: bool = False
    items: list[dict[str, Any]] = field(default_factory=list)
    _open: ReasoningItem | MessageItem | CallItem | None = None
    # Scores may come before the text they belong to, or behind it.
    _scores: list[ScoredToken] = field(default_factory=list)

    def add(self, delta: Delta) -> Iterator[Event]:
        """Give the events of a delta."""
        if delta.reasoning:
            yield from self._think(delta.reasoning)
        self._scores += delta.scores
        if delta.content or (self._scores and isinstance(self._open, MessageItem)):
            yield from self._say(delta.content)
        for piece in delta.calls:
            yield from self._call(piece)

    def finish(self, *, cut: bool) -> Iterator[Event]:
        """Give the last events; `cut`: the item that is open is not all of it."""
        yield from self._close(INCOMPLETE if cut else COMPLETED)

    def _think(self, text: str) -> Iterator[Event]:
        item = self._open
        if not isinstance(item, ReasoningItem):
            yield from self._close()
            item = ReasoningItem(len(self.items), summarised=self.summarised, sealed=self.sealed)
            self._open = item
            yield from item.open()
        yield from item.add(text)

    def _say(self, text: str) -> Iterator[Event]:
        item = self._open
        if not isinstance(item, MessageItem):
            yield from self._close()
            self._open = item = MessageItem(len(self.items))
            yield from item.open()
        scores, self._scores = self._scores, []
        yield from item.add(text, scores)

    def _call(self, piece: CallDelta) -> Iterator[Event]:
        item = self._open
        if not isinstance(item, CallItem) or item.number != piece.index:
            yield from self._close()
            origin = self.origin(piece.name or "")
            item = CallItem(
                len(self.items), number=piece.index, call_id=piece.id or "", origin=origin
            )
            self._open = item
            yield from item.open()
        yield from item.add(piece)

    def _close(self, status: str = COMPLETED) -> Iterator[Event]:
        item, self._open = self._open, None
        if item is not None:
            yield from item.close(status)
            self.items.append(item.item)
