"""Ctrl-C while an answer is made: it ends the answer, not the program."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType


class Interruption:
    """Within it the first Ctrl-C only sets `asked`, so that the engine is left in order; the next
    one interrupts as usual."""

    def __init__(self) -> None:
        self.asked = False

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
        self.asked = True
        signal.signal(signal.SIGINT, self._before)
