"""Objects of the Chat Completions API."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ninfer_runtime.server.events import (
    CallDelta,
    Delta,
    Finished,
    ScoredToken,
    Usage,
)
from ninfer_runtime.server.logprobs import write_chat_scores
from ninfer_runtime.server.usage import join_usage, write_timings, write_usage


@dataclass
class ChoiceText:
    """What has come of one choice."""

    reasoning: list[str] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    scores: list[ScoredToken] = field(default_factory=list)

    def add(self, delta: Delta) -> None:
        if delta.reasoning:
            self.reasoning.append(delta.reasoning)
        if delta.content:
            self.content.append(delta.content)
        self.scores.extend(delta.scores)
        for piece in delta.calls:
            self._add_call(piece)

    def _add_call(self, piece: CallDelta) -> None:
        while len(self.calls) <= piece.index:
            function = {"name": "", "arguments": ""}
            self.calls.append({"id": "", "type": "function", "function": function})
        call = self.calls[piece.index]
        call["id"] = piece.id or call["id"]
        call["function"]["name"] = piece.name or call["function"]["name"]
        call["function"]["arguments"] += piece.arguments

    def message(self) -> dict[str, Any]:
        """Return the assistant's message; without text its content is null if it has calls."""
        text = "".join(self.content)
        content = None if self.calls and not text else text
        found: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if self.reasoning:
            found["reasoning_content"] = "".join(self.reasoning)
        if self.calls:
            found["tool_calls"] = self.calls
        return found


@dataclass(frozen=True)
class ChatObjects:
    """Writes the objects of one answer; all share its id, model and time. `scored`: the client
    wants log probabilities."""

    model: str
    scored: bool
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(8)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def completion(
        self, texts: Sequence[ChoiceText], finished: Sequence[Finished]
    ) -> dict[str, Any]:
        """Return the whole answer."""
        choices = [
            {
                "index": index,
                "message": text.message(),
                "logprobs": write_chat_scores(text.scores) if self.scored else None,
                "finish_reason": done.reason,
            }
            for index, (text, done) in enumerate(zip(texts, finished, strict=True))
        ]
        usage = join_usage(finished)
        return {
            "id": self.id, "object": "chat.completion", "created": self.created,
            "model": self.model, "choices": choices, "usage": write_usage(usage),
            **write_closing(finished, usage),
        }  # fmt: skip

    def opening(self, index: int) -> dict[str, Any]:
        """Return the first chunk of a choice."""
        return self._chunk([_choice(index, {"role": "assistant", "content": ""})])

    def piece(self, index: int, delta: Delta) -> dict[str, Any] | None:
        """Return the chunk of a delta, None when it has nothing to say."""
        content: dict[str, Any] = {}
        if delta.reasoning:
            content["reasoning_content"] = delta.reasoning
        if delta.content:
            content["content"] = delta.content
        if delta.calls:
            content["tool_calls"] = [_write_call(piece) for piece in delta.calls]
        scores = write_chat_scores(delta.scores) if self.scored and delta.scores else None
        if not content and scores is None:
            return None
        return self._chunk([_choice(index, content, scores)])

    def ending(self, index: int, done: Finished) -> dict[str, Any]:
        """Return the chunk that says why a choice ended."""
        return self._chunk([_choice(index, {}, None, done.reason)])

    def summary(self, finished: Sequence[Finished]) -> dict[str, Any]:
        """Return the chunk without choices that has the usage."""
        usage = join_usage(finished)
        chunk = {**self._chunk([]), "usage": write_usage(usage)}
        return chunk | write_closing(finished, usage)

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id, "object": "chat.completion.chunk", "created": self.created,
            "model": self.model, "choices": choices,
        }  # fmt: skip


def write_closing(finished: Sequence[Finished], usage: Usage) -> dict[str, Any]:
    """Return the fields `timings` and, if there are any, `warnings`."""
    found = list(dict.fromkeys(text for done in finished for text in done.warnings))
    warnings = {"warnings": found} if found else {}
    return {"timings": write_timings(finished, usage), **warnings}


def _choice(
    index: int, delta: dict[str, Any], scores: Any = None, reason: str | None = None
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": scores, "finish_reason": reason}


def _write_call(piece: CallDelta) -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": piece.arguments}
    if piece.name is None:
        return {"index": piece.index, "function": function}
    call = {"index": piece.index, "id": piece.id, "type": "function"}
    return {**call, "function": {"name": piece.name, **function}}
