"""Messages for a loop that sleeps when it has nothing else to do."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any


class Inbox:
    """Filled by other threads, emptied by the one that runs rounds."""

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self._awake = False
        self._condition = threading.Condition()
        self.closed = False

    def put(self, message: Any) -> None:
        with self._condition:
            self._messages.append(message)
            self._condition.notify()

    def wake(self) -> None:
        """End a wait, or the next one, without a message."""
        with self._condition:
            self._awake = True
            self._condition.notify()

    def close(self) -> None:
        """Nobody will write any more."""
        with self._condition:
            self.closed = True
            self._condition.notify()

    def take(self, wait: float | None) -> list[Any]:
        """Return all messages; without any, wait `wait` seconds for one (None: for ever)."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._messages or self._awake or self.closed, timeout=wait
            )
            self._awake = False
            messages = list(self._messages)
            self._messages.clear()
            return messages
