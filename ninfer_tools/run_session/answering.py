"""One request through the engine, its text as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ninfer_tools.run_session.screen import Screen

if TYPE_CHECKING:
    from ninfer_runtime.engine.engine import Engine
    from ninfer_runtime.engine.request import Request, Step, TokenScore
    from ninfer_runtime.frontend.tokenizer import Tokenizer


@dataclass
class Answer:
    """What came of a request. `tokens` end with the one that completed a stop string or is a stop
    id. `accepted[i]` counts the rounds, of `rounds` with drafts, that accepted more than i of
    them; the last round, cut by the end, does not count."""

    prompt_tokens: int
    reasoning: str = ""
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    scores: list[TokenScore] = field(default_factory=list)
    finish: str = ""
    stop: str | None = None
    error: str | None = None
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    first_tokens: int = 0
    rounds: int = 0
    accepted: list[int] = field(default_factory=list)


def run_request(
    engine: Engine,
    request: Request,
    tokenizer: Tokenizer | None,
    *,
    thinking: bool,
    screen: Screen,
    stopped: Callable[[], bool],
    stops: Sequence[str] = (),
) -> Answer:
    """Answer a request, showing text as it comes; `stopped` is asked between rounds. The answer
    ends before any of the texts `stops`.

    Without a tokenizer the answer has ids only. RequestError for what the engine refuses.
    """
    answer = Answer(len(request.prompt))
    writer = _Writer(answer, tokenizer, thinking, screen, stops)
    started = time.perf_counter()
    number = engine.add(request)
    begun = 0.0
    while not answer.finish:
        cancelled = engine.cancel(number) if stopped() else None
        for step in [cancelled] if cancelled else engine.step():
            if step.tokens and not answer.tokens:
                begun = time.perf_counter()
                answer.prefill_seconds = begun - started
                answer.first_tokens = len(step.tokens)
            kept = writer.push(step)
            if kept is None:
                _record(answer, step)
            else:
                _cut(engine, answer, step, kept)
    answer.decode_seconds = time.perf_counter() - begun if begun else 0.0
    writer.finish()
    return answer


def _record(answer: Answer, step: Step) -> None:
    answer.tokens += step.tokens
    answer.scores += step.scores
    answer.finish = step.finish or ""
    answer.error = step.error
    if step.drafted and step.finish is None:
        answer.rounds += 1
        counts = answer.accepted or [0] * step.drafted
        kept = len(step.tokens) - 1
        answer.accepted = [count + (kept > i) for i, count in enumerate(counts)]


def _cut(engine: Engine, answer: Answer, step: Step, kept: int) -> None:
    """End an answer with the first `kept` tokens of a step; the others count for nothing."""
    from ninfer_runtime.engine.request import STOP

    engine.truncate(step.number, len(answer.tokens) + kept)
    answer.tokens += step.tokens[:kept]
    answer.scores += step.scores[:kept]
    answer.first_tokens = min(answer.first_tokens, len(answer.tokens))
    answer.finish = STOP


class _Writer:
    """Turns ids into the two sides of an answer and shows them."""

    def __init__(
        self,
        answer: Answer,
        tokenizer: Tokenizer | None,
        thinking: bool,
        screen: Screen,
        stops: Sequence[str],
    ) -> None:
        from ninfer_runtime.frontend.output_parser import OutputParser
        from ninfer_runtime.frontend.stop_strings import StopStrings
        from ninfer_runtime.frontend.text_stream import TextStream

        self._answer, self._screen = answer, screen
        self._stream = None if tokenizer is None else TextStream(tokenizer, skip_special=True)
        self._parser = OutputParser(thinking)
        self._stops = StopStrings(stops)

    def push(self, step: Step) -> int | None:
        """Show the text of a step; return how many of its tokens count when a stop string is
        complete with the last of them, else None."""
        if self._stream is None:
            return None
        ending = step.finish == "stop"
        for i, id in enumerate(step.tokens[: len(step.tokens) - ending]):
            self._show(self._stops.push(self._stream.push((id,))))
            if self._stops.found is not None:
                self._answer.stop = self._stops.found
                return i + 1
        return None

    def finish(self) -> None:
        if self._stream is not None:
            self._show(self._stops.push(self._stream.finish()) + self._stops.finish())
            pieces = self._parser.finish()
            self._keep(pieces.reasoning, pieces.answer)
        self._screen.finish()

    def _show(self, text: str) -> None:
        pieces = self._parser.push(text)
        self._keep(pieces.reasoning, pieces.answer)

    def _keep(self, reasoning: str, text: str) -> None:
        self._answer.reasoning += reasoning
        self._answer.text += text
        self._screen.show(reasoning, text)
