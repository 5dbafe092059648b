"""A started request: what routes read while the engine works."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from ninfer_runtime.frontend.answer_parser import AnswerParser, AnswerPiece
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.engine_process.messages import Admitted, Ended, Said
from ninfer_runtime.server.events import (
    CANCELLED,
    ERROR,
    LENGTH,
    STOP,
    TOOL_CALLS,
    Delta,
    Finished,
    Usage,
)
from ninfer_runtime.server.prepared import Prepared

Item = tuple[int, Delta | Finished]


@dataclass
class Choice:
    """One of the independent answers to a prompt. `processed` counts prompt tokens, `tokens`
    those of the answer; `lane` None: it has none yet."""

    key: int
    index: int
    parser: AnswerParser | None
    lane: int | None = None
    cached: int = 0
    processed: int = 0
    tokens: int = 0


@dataclass
class AnswerState:
    """What the service keeps of an answer until the engine ends it, whoever still reads it.

    Items wait in `items` for a reader, however slow: they are bounded by the limit of tokens, and
    nobody else is held up.
    """

    prepared: Prepared
    choices: tuple[Choice, ...]
    admission: asyncio.Future[int]
    items: asyncio.Queue[Item] = field(default_factory=asyncio.Queue)
    timer: asyncio.TimerHandle | None = None
    reuse: str | None = None
    differs_at: int | None = None
    closed: bool = False

    def admit(self, choice: Choice, message: Admitted) -> None:
        choice.lane, choice.cached = message.lane, message.reuse.cached
        if not self.admission.done():
            self.reuse, self.differs_at = message.reuse.kind, message.reuse.diverged
            self.admission.set_result(message.reuse.cached)
        self._stop_timer()

    def say(self, choice: Choice, message: Said) -> None:
        choice.tokens = message.tokens
        if self.closed:
            return
        for delta in _split(choice.parser, message.text):
            self.items.put_nowait((choice.index, delta))
        if message.scores:
            self.items.put_nowait((choice.index, Delta(scores=message.scores)))

    def end(self, choice: Choice, message: Ended) -> Finished:
        """Return the end of a choice, after the pieces that were held for it."""
        cut = message.reason != STOP or message.stop is not None
        if choice.parser is not None and not self.closed:
            for piece in choice.parser.finish(cut):
                self.items.put_nowait((choice.index, _convert(piece)))
        finished = self._conclude(choice, message)
        self.items.put_nowait((choice.index, finished))
        return finished

    def fail(self, error: ApiError) -> None:
        """Refuse what was not admitted yet."""
        self._stop_timer()
        if not self.admission.done():
            self.admission.set_exception(error)
            # Nobody may be waiting for it.
            self.admission.exception()

    def _conclude(self, choice: Choice, message: Ended) -> Finished:
        reason = message.reason
        if reason == STOP and choice.parser is not None and choice.parser.complete_calls:
            reason = TOOL_CALLS
        usage = Usage(len(self.prepared.ids), message.tokens, choice.cached, message.reasoning)
        warnings = tuple(_warn(self.prepared, message))
        return Finished(reason, usage, message.timings, message.stop, warnings, message.error)

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Answer:
    """The reader's side. When it is closed, or nobody holds it any more, the request is
    cancelled."""

    def __init__(self, state: AnswerState, cancel: Callable[[], None]) -> None:
        self._state = state
        self._left = len(state.choices)
        # `cancel` must not hold this object.
        self._cancel = weakref.finalize(self, cancel)
        self._cancel.atexit = False

    @property
    def prompt_tokens(self) -> int:
        return len(self._state.prepared.ids)

    @property
    def reuse(self) -> str | None:
        """Where from the cached part of the prompt came, once admitted."""
        return self._state.reuse

    @property
    def differs_at(self) -> int | None:
        """The first position where the best candidate for reuse differs, once admitted."""
        return self._state.differs_at

    @property
    def processed(self) -> int:
        """How many prompt tokens of the first choice are computed."""
        return self._state.choices[0].processed

    async def admitted(self) -> int:
        """Wait for a lane; return how many prompt tokens are cached.

        ApiError 503 when the wait is too long or the engine is gone.
        """
        return await asyncio.shield(self._state.admission)

    async def __aiter__(self) -> AsyncIterator[Item]:
        await self.admitted()
        while self._left:
            index, item = await self._state.items.get()
            if isinstance(item, Finished):
                self._left -= 1
            yield index, item

    def cancel(self) -> None:
        """Let the engine forget the request; nothing more comes. Again: nothing."""
        self._cancel()

    async def aclose(self) -> None:
        self.cancel()


def _split(parser: AnswerParser | None, text: str) -> list[Delta]:
    if not text:
        return []
    if parser is None:
        return [Delta(content=text)]
    return [_convert(piece) for piece in parser.push(text)]


def _convert(piece: AnswerPiece) -> Delta:
    return Delta(piece.reasoning, piece.content, piece.calls)


def _warn(prepared: Prepared, message: Ended) -> list[str]:
    """Return sentences about what a client could not know otherwise."""
    found = []
    asked = prepared.asked_tokens
    if asked is not None and asked > prepared.max_tokens and message.reason == LENGTH:
        found.append(
            f"max_tokens was {asked}, but behind the prompt of {len(prepared.ids)} tokens the "
            f"context has room for {prepared.max_tokens}."
        )
    if message.open_reasoning and message.reason == LENGTH:
        found.append(
            f"The answer was cut inside the reasoning after {message.tokens} tokens, before any "
            "content: ask for more max_tokens, a thinking budget, or no thinking."
        )
    if message.open_reasoning and message.reason == STOP:
        found.append(
            "The model ended its answer without closing its reasoning: all text is reasoning."
        )
    if message.closed_at is not None and message.reason not in (CANCELLED, ERROR):
        found.append(
            f"The reasoning was closed after {message.closed_at} tokens, the thinking budget or "
            "what leaves room for the answer, or where the model ended without an answer."
        )
    return found
