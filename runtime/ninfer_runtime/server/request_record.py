"""What is known of one request when it has ended; no texts and no keys."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any

from ninfer_runtime.server.events import ERROR, Finished

_WORD = re.compile(r"[A-Za-z0-9_.\[\]-]{1,100}")


@dataclass
class RequestRecord:
    """Filled by whoever handles the request; seconds in all durations. `notes` are sentences for
    the client, which become warnings of its answer."""

    id: str
    method: str
    path: str
    began: float = field(default_factory=time.time)
    clock: float = field(default_factory=time.perf_counter)
    status: int | None = None
    error: str | None = None
    param: str | None = None
    stream: bool = False
    model: str | None = None
    choices: int = 1
    max_tokens: int | None = None
    thinking: bool | None = None
    effort: str | None = None
    budget: int | None = None
    prompt: int | None = None
    cached: int | None = None
    reuse: str | None = None
    differs_at: int | None = None
    first: float | None = None
    total: float | None = None
    cancelled: bool = False
    notes: list[str] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)

    def note_first(self) -> None:
        """Remember when the first piece of an answer was there."""
        if self.first is None:
            self.first = time.perf_counter() - self.clock

    def note_refusal(self, code: str | None, param: str | None) -> None:
        """Remember what was refused. A name that is no word could be anybody's text."""
        self.error = code or "invalid_request"
        if param is not None and _WORD.fullmatch(param):
            self.param = param

    def end(self) -> None:
        self.total = time.perf_counter() - self.clock

    def sum_of(self, name: str) -> int:
        """Return the sum of a field of `Usage` or `Timings` over the choices."""
        return sum(
            getattr(done.usage, name) if hasattr(done.usage, name) else getattr(done.timings, name)
            for done in self.finished
        )

    @property
    def outcome(self) -> str:
        """Return why the answers ended, or why there is none."""
        if self.cancelled:
            return "cancelled"
        if self.error is not None:
            return ERROR
        return ",".join(sorted({done.reason for done in self.finished})) or "none"

    def fields(self) -> dict[str, Any]:
        """Return the line of the request log."""
        longest = max((done.timings for done in self.finished), key=_duration, default=None)
        drafted, accepted = self.sum_of("drafted"), self.sum_of("accepted")
        facts = {
            "timestamp_unix_ms": round(self.began * 1000), "request_id": self.id,
            "method": self.method, "path": self.path, "status": self.status,
            "error": self.error, "param": self.param, "stream": self.stream, "model": self.model,
            "choices": self.choices, "max_tokens": self.max_tokens, "thinking": self.thinking,
            "effort": self.effort, "thinking_budget": self.budget,
            "prompt_tokens": self.prompt, "cached_tokens": self.cached, "reuse": self.reuse,
            "first_differing_position": self.differs_at,
            "completion_tokens": self.sum_of("completion"),
            "reasoning_tokens": self.sum_of("reasoning"),
            "drafted_tokens": drafted, "accepted_tokens": accepted,
            "acceptance": round(accepted / drafted, 4) if drafted else None,
            "finish": self.outcome,
            "seconds": {
                "first_token": _round(self.first), "total": _round(self.total),
                "queued": _round(longest and longest.queued),
                "prefill": _round(longest and longest.prefill),
                "decode": _round(longest and longest.decode),
            },
        }  # fmt: skip
        return facts


def _duration(timings: Any) -> float:
    return timings.prefill + timings.decode


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
