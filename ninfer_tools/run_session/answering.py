"""One request through the engine, its text as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ninfer_tools.run_session.screen import Screen

if TYPE_CHECKING:
    from ninfer_runtime.engine.engine import Engine
    from ninfer_runtime.engine.request import Request, Step
    from ninfer_runtime.frontend.tokenizer import Tokenizer


@dataclass
class Answer:
    """What came of a request. `accepted[i]` counts the rounds, of `rounds` with drafts, that
    accepted more than i of them; the last round, cut by the end, does not count."""

    prompt_tokens: int
    reasoning: str = ""
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    finish: str = ""
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
) -> Answer:
    """Answer a request, showing text as it comes; `stopped` is asked between rounds.

    Without a tokenizer the answer has ids only. RequestError for what the engine refuses.
    """
    answer = Answer(len(request.prompt))
    writer = _Writer(answer, tokenizer, thinking, screen)
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
            _record(answer, step)
            ending = step.tokens[-1:] if step.tokens[-1:] and step.finish == "stop" else ()
            writer.push(step.tokens[: len(step.tokens) - len(ending)])
    answer.decode_seconds = time.perf_counter() - begun if begun else 0.0
    writer.finish()
    return answer


def _record(answer: Answer, step: Step) -> None:
    answer.tokens += step.tokens
    answer.finish = step.finish or ""
    answer.error = step.error
    if step.drafted and step.finish is None:
        answer.rounds += 1
        counts = answer.accepted or [0] * step.drafted
        kept = len(step.tokens) - 1
        answer.accepted = [count + (kept > i) for i, count in enumerate(counts)]


class _Writer:
    """Turns ids into the two sides of an answer and shows them."""

    def __init__(
        self, answer: Answer, tokenizer: Tokenizer | None, thinking: bool, screen: Screen
    ) -> None:
        from ninfer_runtime.frontend.output_parser import OutputParser
        from ninfer_runtime.frontend.text_stream import TextStream

        self._answer, self._screen = answer, screen
        self._stream = None if tokenizer is None else TextStream(tokenizer, skip_special=True)
        self._parser = OutputParser(thinking)

    def push(self, ids: tuple[int, ...]) -> None:
        if self._stream is not None:
            self._show(self._stream.push(ids))

    def finish(self) -> None:
        if self._stream is not None:
            self._show(self._stream.finish())
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
