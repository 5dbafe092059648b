"""The loop of the engine process, in a thread of the test, and what it says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.request import Sampling
from ninfer_runtime.frontend.tokenizer import Tokenizer
from ninfer_runtime.server.engine_process.grammar import Grammars
from ninfer_runtime.server.engine_process.host import Host
from ninfer_runtime.server.engine_process.inbox import Inbox
from ninfer_runtime.server.engine_process.messages import (
    Ended,
    Report,
    Said,
    Stop,
    Submit,
    WatchedAnswer,
)

PROMPT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
THINK, NO_THINK = "<think>\n", "<think>\n\n</think>\n\n"
_PATIENCE = 60.0


class LiveHost:
    """`heard` are all messages in order; `send` may be told to look at each report first."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, grammars: Grammars | None) -> None:
        self.engine, self.tokenizer = engine, tokenizer
        self.heard: list[Any] = []
        self.gauges: list[Any] = []
        self._changed = threading.Condition()
        self.inbox = Inbox()
        host = Host(engine, tokenizer, grammars, self.inbox, self._hear, 1 << 24)
        self.thread = threading.Thread(target=host.run, daemon=True)
        self.thread.start()

    def _hear(self, report: Report) -> None:
        with self._changed:
            self.heard += report.messages
            self.gauges.append(report.gauges)
            self._changed.notify_all()

    def submit(
        self,
        key: int,
        text: str = "What is 2+2?",
        *,
        watch: WatchedAnswer = WatchedAnswer(False),  # noqa: B008, frozen
        max_tokens: int = 60,
        sampling: Sampling = Sampling(),  # noqa: B008, frozen
        stops: tuple[int, ...] | None = None,
        **more: Any,
    ) -> None:
        tail = {True: THINK, False: NO_THINK, None: ""}[watch.thinking]
        ids = self.tokenizer.encode(PROMPT.format(text) + tail)
        stops = self.tokenizer.stops if stops is None else stops
        self.inbox.put(
            Submit(key, np.array(ids, np.int32), max_tokens, sampling, stops, watch,
                   submitted=time.monotonic(), **more)
        )  # fmt: skip

    def wait(self, found: Callable[[list[Any]], bool]) -> None:
        """Wait until what was heard satisfies `found`."""
        with self._changed:
            assert self._changed.wait_for(lambda: found(self.heard), _PATIENCE), self.heard

    def wait_for(self, kind: type, key: int) -> Any:
        """Wait for the first message of a kind about a request; return it."""
        self.wait(lambda heard: any(_is(m, kind, key) for m in heard))
        return next(m for m in self.heard if _is(m, kind, key))

    def end_of(self, key: int) -> Ended:
        return self.wait_for(Ended, key)

    def text_of(self, key: int) -> str:
        return "".join(m.text for m in self.heard if _is(m, Said, key))

    def scores_of(self, key: int) -> list[Any]:
        return [score for m in self.heard if _is(m, Said, key) for score in m.scores]

    def ask(self, key: int, *arguments: Any, **options: Any) -> tuple[str, Ended]:
        """Submit, wait for the end, return the whole text and the end."""
        self.submit(key, *arguments, **options)
        end = self.end_of(key)
        return self.text_of(key), end

    def stop(self, limit: float = 0.0) -> None:
        self.inbox.put(Stop(limit))
        self.thread.join(_PATIENCE)
        assert not self.thread.is_alive()


def _is(message: Any, kind: type, key: int) -> bool:
    return isinstance(message, kind) and message.key == key
