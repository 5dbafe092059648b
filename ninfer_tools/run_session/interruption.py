"""Ctrl-C while an answer is made: it ends the answer, not the program."""

from __future__ import annotations

import signal
import time
from types import FrameType, TracebackType

_PATIENCE = 5.0


class Interruption:
    """Within it Ctrl-C only sets `asked`, so that the engine is left in order. The next one
    interrupts as usual: at once, or with `patient` only when nothing came of the first one for
    five seconds."""

    def __init__(self, *, patient: bool = False) -> None:
        self.asked = False
        self._wait = _PATIENCE if patient else 0.0
        self._since = 0.0

    def __enter__(self) -> Interruption:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.asked and now - self._since >= self._wait:
            raise KeyboardInterrupt
        if not self.asked:
            self.asked, self._since = True, now
