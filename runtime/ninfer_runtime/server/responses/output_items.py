"""Items of an answer as they grow, each with the events that tell of it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ninfer_runtime.frontend.tool_calls.call_delta import CallDelta
from ninfer_runtime.server.events import ScoredToken
from ninfer_runtime.server.logprobs import write_chat_scores
from ninfer_runtime.server.sealed_text import seal

Event = dict[str, Any]
IN_PROGRESS, COMPLETED, INCOMPLETE = "in_progress", "completed", "incomplete"
_PREFIXES = {"reasoning": "rs", "message": "msg", "function_call": "fc"}


def make_id(kind: str) -> str:
    """Return a new id for an item of a type."""
    return f"{_PREFIXES.get(kind, 'item')}_{secrets.token_hex(12)}"


@dataclass
class _Growing:
    """`index` is the place of the item in the output."""

    index: int
    pieces: list[str] = field(default_factory=list)
    item: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def _event(self, kind: str, **more: Any) -> Event:
        return {
            "type": f"response.{kind}", "item_id": self.item["id"], "output_index": self.index,
            **more,
        }  # fmt: skip

    def _added(self) -> Event:
        item = {name: list(v) if isinstance(v, list) else v for name, v in self.item.items()}
        return {"type": "response.output_item.added", "output_index": self.index, "item": item}

    def _done(self, status: str) -> Event:
        self.item["status"] = status
        return {
            "type": "response.output_item.done", "output_index": self.index,
            "item": dict(self.item),
        }  # fmt: skip


@dataclass
class ReasoningItem(_Growing):
    """The reasoning; `summarised` and `sealed` say in which further forms it is wanted."""

    summarised: bool = False
    sealed: bool = False

    def open(self) -> Iterator[Event]:
        self.item = {
            "id": make_id("reasoning"), "type": "reasoning", "summary": [], "content": [],
            "encrypted_content": None, "status": IN_PROGRESS,
        }  # fmt: skip
        yield self._added()
        part = {"type": "reasoning_text", "text": ""}
        yield self._event("content_part.added", content_index=0, part=part)
        if self.summarised:
            part = {"type": "summary_text", "text": ""}
            yield self._event("reasoning_summary_part.added", summary_index=0, part=part)

    def add(self, text: str) -> Iterator[Event]:
        self.pieces.append(text)
        yield self._event("reasoning_text.delta", content_index=0, delta=text)
        if self.summarised:
            yield self._event("reasoning_summary_text.delta", summary_index=0, delta=text)

    def close(self, status: str) -> Iterator[Event]:
        text = self.text
        yield self._event("reasoning_text.done", content_index=0, text=text)
        part = {"type": "reasoning_text", "text": text}
        yield self._event("content_part.done", content_index=0, part=part)
        self.item["content"] = [part]
        if self.summarised:
            yield self._event("reasoning_summary_text.done", summary_index=0, text=text)
            part = {"type": "summary_text", "text": text}
            yield self._event("reasoning_summary_part.done", summary_index=0, part=part)
            self.item["summary"] = [part]
        if self.sealed:
            self.item["encrypted_content"] = seal(text)
        yield self._done(status)


@dataclass
class MessageItem(_Growing):
    """Text for the user, with the scores of its tokens."""

    scores: list[dict[str, Any]] = field(default_factory=list)

    def open(self) -> Iterator[Event]:
        self.item = {
            "id": make_id("message"), "type": "message", "role": "assistant", "content": [],
            "status": IN_PROGRESS,
        }  # fmt: skip
        yield self._added()
        yield self._event("content_part.added", content_index=0, part=self._part())

    def add(self, text: str, scores: Sequence[ScoredToken]) -> Iterator[Event]:
        self.pieces.append(text)
        written = write_chat_scores(scores)["content"]
        self.scores += written
        yield self._event("output_text.delta", content_index=0, delta=text, logprobs=written)

    def close(self, status: str) -> Iterator[Event]:
        part = self._part()
        self.item["content"] = [part]
        yield self._event(
            "output_text.done", content_index=0, text=part["text"], logprobs=part["logprobs"]
        )
        yield self._event("content_part.done", content_index=0, part=part)
        yield self._done(status)

    def _part(self) -> dict[str, Any]:
        return {
            "type": "output_text", "text": self.text, "annotations": [],
            "logprobs": list(self.scores),
        }  # fmt: skip


@dataclass
class CallItem(_Growing):
    """A call; `origin` are the namespace and the name its function has for the client."""

    number: int = 0
    call_id: str = ""
    origin: tuple[str | None, str] = (None, "")

    def open(self) -> Iterator[Event]:
        namespace, name = self.origin
        within = {} if namespace is None else {"namespace": namespace}
        self.item = {
            "id": make_id("function_call"), "type": "function_call", "call_id": self.call_id,
            "name": name, **within, "arguments": "", "status": IN_PROGRESS,
        }  # fmt: skip
        yield self._added()

    def add(self, piece: CallDelta) -> Iterator[Event]:
        if piece.arguments:
            self.pieces.append(piece.arguments)
            yield self._event("function_call_arguments.delta", delta=piece.arguments)

    def close(self, status: str) -> Iterator[Event]:
        """End the call. One that is whole is complete, even if nothing could follow it."""
        self.item["arguments"] = self.text
        if status == INCOMPLETE and _is_json(self.text):
            status = COMPLETED
        yield self._event(
            "function_call_arguments.done", name=self.item["name"], arguments=self.text
        )
        yield self._done(status)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
