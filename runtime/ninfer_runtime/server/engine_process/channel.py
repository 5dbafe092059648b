"""One end of the pipe between two processes, with a thread for each direction.

Sending never waits for the other side: a process that reads late costs memory here, not time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any


class Channel:
    """`receive` takes every message, and then `closed` is called once, in a thread of the channel,
    when the other side is gone or this one is closed."""

    def __init__(
        self,
        connection: Connection,
        receive: Callable[[Any], None],
        closed: Callable[[], None],
    ) -> None:
        self._connection, self._receive, self._closed = connection, receive, closed
        self._outgoing: SimpleQueue[Any] = SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="pipe writer", daemon=True)
        self._reader = threading.Thread(target=self._read, name="pipe reader", daemon=True)

    def start(self) -> None:
        self._writer.start()
        self._reader.start()

    def send(self, message: Any) -> None:
        self._outgoing.put(message)

    def flush(self, seconds: float) -> None:
        """Send what is waiting, for so long at most; nothing can be sent afterwards."""
        self._outgoing.put(_END)
        self._writer.join(seconds)

    def _write(self) -> None:
        while (message := self._outgoing.get()) is not _END:
            try:
                self._connection.send(message)
            except OSError:  # the reader learns it too, and says so
                return

    def _read(self) -> None:
        try:
            while True:
                self._receive(self._connection.recv())
        except (EOFError, OSError):
            self._closed()


_END = object()
