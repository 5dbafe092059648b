"""The loop of the engine process: messages, one step of the engine, what came of it, again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.request import CANCELLED, ERROR, STOP, Request, Step
from ninfer_runtime.engine.sequence import Phase
from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.tokenizer import Tokenizer
from ninfer_runtime.server.engine_process.answer_watch import AnswerWatch, Turn
from ninfer_runtime.server.engine_process.arrivals import Arrival, Arrivals
from ninfer_runtime.server.engine_process.grammar import Grammars
from ninfer_runtime.server.engine_process.inbox import Inbox
from ninfer_runtime.server.engine_process.live_request import LiveRequest
from ninfer_runtime.server.engine_process.messages import (
    Admitted,
    Cancel,
    Ended,
    Gauges,
    Patches,
    Prefilled,
    Report,
    Said,
    Stop,
    Submit,
    WantPatches,
)
from ninfer_runtime.server.engine_process.tower_rows import TowerRows


class Host:
    """Owns the engine. Messages are heard between rounds, so a cancelled request is gone within
    one, wherever it is. `send` must not wait."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        grammars: Grammars | None,
        inbox: Inbox,
        send: Callable[[Report], None],
        tower_bytes: int,
    ) -> None:
        self._engine, self._tokenizer, self._inbox, self._send = engine, tokenizer, inbox, send
        self._arrivals = Arrivals(
            engine.model.vision, TowerRows(tower_bytes), grammars, inbox.wake, self._say
        )
        self._live: dict[int, LiveRequest] = {}
        self._numbers: dict[int, int] = {}
        self._out: list[Any] = []
        self._deadline: float | None = None
        self._rounds = self._lane_rounds = 0

    def run(self) -> None:
        """Serve until the other side asks for the end or is gone."""
        while not self._inbox.closed:
            for message in self._inbox.take(self._patience()):
                self._receive(message)
            if self._deadline is not None and self._is_over(self._deadline):
                return
            self._turn()

    def abandon(self, why: str) -> None:
        """End every request with an error: the engine is gone."""
        for submit in self._arrivals.clear():
            self._say(Ended(submit.key, ERROR, error=why))
        for live in self._live.values():
            self._say(live.end(ERROR, error=why))
        self._live.clear()
        self._numbers.clear()
        self._flush()

    def _patience(self) -> float | None:
        """Return how long nothing else is to be done: 0 while there is work, None for ever."""
        if self._engine.busy or self._arrivals.workable:
            return 0.0
        if self._deadline is None:
            return None
        left = self._deadline - time.monotonic()
        return max(0.0, left) if self._live or self._arrivals else 0.0

    def _is_over(self, deadline: float) -> bool:
        if not self._live and not self._arrivals:
            return True
        if time.monotonic() < deadline:
            return False
        for submit in self._arrivals.clear():
            self._say(Ended(submit.key, CANCELLED))
        for live in list(self._live.values()):
            self._cancel(live.submit.key)
        self._flush()
        return True

    def _turn(self) -> None:
        if not self._engine.waiting:
            self._advance()
        if self._engine.busy:
            before = time.monotonic()
            self._follow(self._engine.step(), before)
        self._flush()

    def _receive(self, message: Any) -> None:
        match message:
            case Submit():
                self._guard(message.key, lambda: self._arrivals.append(message))
            case Cancel():
                self._cancel(message.key)
            case Patches():
                self._arrivals.receive(message)
            case Stop():
                self._deadline = time.monotonic() + message.limit

    def _guard(self, key: int, act: Callable[[], None]) -> None:
        """Do something for a request that does not run yet; it ends if it is refused, or if there
        is no memory for it, which leaves the engine as it was."""
        try:
            act()
        except RequestError as error:
            self._arrivals.remove(key)
            self._say(Ended(key, ERROR, error=str(error), refused=True))
        except (MemoryError, torch.OutOfMemoryError):
            self._arrivals.remove(key)
            self._say(Ended(key, ERROR, error="there is not enough memory for the request's media"))

    def _cancel(self, key: int) -> None:
        if self._arrivals.remove(key):
            self._say(Ended(key, CANCELLED))
        elif key in self._numbers:
            live = self._live[self._numbers[key]]
            self._engine.cancel(live.number)
            self._finish(live, CANCELLED)

    def _advance(self) -> None:
        """Bring the next request nearer to the engine, or into it."""
        key = self._arrivals.head_key
        if key is not None:
            self._guard(key, self._take_arrival)

    def _take_arrival(self) -> None:
        arrival = self._arrivals.advance()
        if arrival is not None:
            self._guard(arrival.submit.key, lambda: self._add(arrival))

    def _add(self, arrival: Arrival) -> None:
        submit = arrival.submit
        vocabulary = self._engine.geometry.text.vocab_size
        watch = AnswerWatch(submit.watch, self._tokenizer, vocabulary, arrival.matcher)
        request = Request(
            tuple(submit.prompt.tolist()), submit.max_tokens, submit.sampling, submit.stops,
            arrival.media, submit.logprobs, watch.first_mask, held=True,
            boundaries=submit.boundaries,
        )  # fmt: skip
        number = self._engine.add(request)
        self._live[number] = LiveRequest(submit, number, watch)
        self._numbers[submit.key] = number

    def _follow(self, steps: list[Step], before: float) -> None:
        """Report who moved on in a step begun at `before`, then what it says."""
        for live in self._live.values():
            self._note_progress(live, before)
        if steps:
            self._rounds += 1
            self._lane_rounds += len(steps)
        for step in steps:
            live = self._live.get(step.number)
            if live is not None:
                self._read(live, step)

    def _note_progress(self, live: LiveRequest, before: float) -> None:
        sequence = self._engine.find(live.number)
        if sequence is None or sequence.phase is Phase.WAITING:
            return
        key = live.submit.key
        if live.admitted is None:
            live.admitted = before
            queued = live.admitted - live.submit.submitted
            self._say(Admitted(key, sequence.lane, queued, sequence.reuse))
        if live.first is None and sequence.prefilled != live.prefilled:
            live.prefilled = sequence.prefilled
            self._say(Prefilled(key, live.prefilled))

    def _read(self, live: LiveRequest, step: Step) -> None:
        """Pass on what a step says, and let the engine do what follows from it."""
        live.count(step)
        try:
            reading = live.watch.read(step)
        except RequestError as error:
            self._engine.cancel(live.number)
            self._finish(live, ERROR, error=str(error))
            return
        self._say_text(live, reading.text, reading.scores)
        turn = reading.turn
        if turn is not None and turn.stop is not None:
            self._engine.truncate(live.number, turn.keep, turn.shown)
            self._finish(live, STOP, stop=turn.stop)
        elif turn is not None and self._goes_on(live, step, turn):
            self._engine.rewind(live.number, turn.keep)
            self._engine.constrain(live.number, turn.mask)
        elif step.finish is not None:
            self._engine.truncate(live.number, live.watch.tokens)
            self._finish(live, step.finish, error=step.error)

    def _goes_on(self, live: LiveRequest, step: Step, turn: Turn) -> bool:
        """Return whether the answer has a next token: not after its last one."""
        return step.finish is None or (turn.keep < live.submit.max_tokens and step.finish != ERROR)

    def _finish(self, live: LiveRequest, reason: str, **facts: str | None) -> None:
        """Say what was held and the end. The request is out of the engine."""
        if facts.get("stop") is None:
            rest = live.watch.finish()
            self._say_text(live, rest.text, rest.scores)
            if rest.turn is not None and reason in ("stop", "length"):
                reason, facts = STOP, {"stop": rest.turn.stop}
        del self._live[live.number], self._numbers[live.submit.key]
        self._say(live.end(reason, **facts))

    def _say_text(self, live: LiveRequest, text: str, scores: tuple[Any, ...]) -> None:
        watch = live.watch
        self._say(Said(live.submit.key, text, watch.tokens, watch.reasoning, scores))

    def _say(self, message: Any) -> None:
        self._out.append(message)
        if isinstance(message, WantPatches):
            self._flush()

    def _flush(self) -> None:
        if self._out:
            self._send(Report(tuple(self._out), self._measure()))
            self._out = []

    def _measure(self) -> Gauges:
        settings = self._engine.settings
        waiting = len(self._arrivals) + self._engine.waiting
        return Gauges(
            settings.lanes - (len(self._live) - self._engine.waiting), self._engine.pages.available,
            settings.pages, waiting, self._rounds, self._lane_rounds, self._engine.prefixes.gauges,
        )  # fmt: skip
