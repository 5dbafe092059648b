"""Objects of the legacy Completions API."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ninfer_runtime.server.chat_objects import write_closing
from ninfer_runtime.server.events import Delta, Finished, ScoredToken, Usage
from ninfer_runtime.server.logprobs import write_text_scores
from ninfer_runtime.server.usage import write_usage


@dataclass
class TextChoice:
    """What has come of one choice; `length` counts the characters before the next score."""

    text: list[str] = field(default_factory=list)
    scores: list[ScoredToken] = field(default_factory=list)
    length: int = 0

    def add(self, delta: Delta) -> None:
        self.text.append(delta.reasoning + delta.content)
        self.scores.extend(delta.scores)


@dataclass(frozen=True)
class TextObjects:
    """Writes the objects of one answer; all share its id, model and time."""

    model: str
    scored: bool
    id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(8)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def completion(
        self, texts: Sequence[TextChoice], finished: Sequence[Finished], usage: Usage
    ) -> dict[str, Any]:
        """Return the whole answer."""
        choices = [
            _choice(
                index, "".join(text.text),
                write_text_scores(text.scores, 0) if self.scored else None, done.reason,
            )
            for index, (text, done) in enumerate(zip(texts, finished, strict=True))
        ]  # fmt: skip
        return {
            **self.chunk(choices), "usage": write_usage(usage),
            **write_closing(finished, usage),
        }  # fmt: skip

    def piece(self, index: int, delta: Delta, before: TextChoice) -> dict[str, Any] | None:
        """Return the chunk of a delta, None when it has nothing to say; counts in `before`."""
        text = delta.reasoning + delta.content
        scores = None
        if self.scored and delta.scores:
            scores = write_text_scores(delta.scores, before.length)
            before.length += sum(map(len, scores["tokens"]))
        if not text and scores is None:
            return None
        return self.chunk([_choice(index, text, scores)])

    def ending(self, index: int, done: Finished) -> dict[str, Any]:
        return self.chunk([_choice(index, "", None, done.reason)])

    def chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id, "object": "text_completion", "created": self.created,
            "model": self.model, "choices": choices,
        }  # fmt: skip


def _choice(index: int, text: str, scores: Any, reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": scores, "finish_reason": reason}
