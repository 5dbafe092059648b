"""A request in the engine, with what is measured of it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ninfer_runtime.engine.request import Step
from ninfer_runtime.server.engine_process.answer_watch import AnswerWatch
from ninfer_runtime.server.engine_process.messages import Ended, Submit
from ninfer_runtime.server.events import Timings


@dataclass
class LiveRequest:
    """Times are `time.monotonic()`; None before it happened."""

    submit: Submit
    number: int
    watch: AnswerWatch
    admitted: float | None = None
    first: float | None = None
    last: float | None = None
    prefilled: int = 0
    drafted: int = 0
    accepted: int = 0

    def count(self, step: Step) -> None:
        """Note the time and the drafts of a step that said something."""
        if not step.tokens:
            return
        self.last = time.monotonic()
        self.first = self.first or self.last
        if not self.watch.masked:
            self.drafted += step.drafted
        self.accepted += len(step.tokens) - 1

    @property
    def timings(self) -> Timings:
        now = time.monotonic()
        admitted = self.admitted or now
        first = self.first or now
        decode = (self.last or first) - first
        return Timings(
            admitted - self.submit.submitted,
            first - admitted if self.admitted else 0.0,
            decode, self.drafted, self.accepted,
        )  # fmt: skip

    def end(self, reason: str, *, stop: str | None = None, error: str | None = None) -> Ended:
        watch = self.watch
        return Ended(
            self.submit.key, reason, watch.tokens, watch.reasoning, self.timings, stop, error,
            watch.in_reasoning, watch.closed_at,
        )  # fmt: skip
