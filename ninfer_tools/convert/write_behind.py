"""Jobs that end in writing, done behind the encoder's back: in order, on one thread."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

Job = Callable[[], object]


class WriteBehind:
    """Runs jobs one after the other, in the order given, while the caller goes on.

    Jobs that wait hold at most `most_bytes` together, or are a single one; `put` waits for room.
    After a job has failed none is begun any more, and the next call raises its error. A block
    that ends badly drops what waits. Either way no job runs any more when the block has ended.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._jobs: deque[tuple[Job, int]] = deque()
        self._bytes = 0
        self._busy = self._ended = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="write-behind", daemon=True)

    def __enter__(self) -> WriteBehind:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.drain()
        finally:
            with self._changed:
                self._jobs.clear()
                self._ended = True
                self._changed.notify_all()
            # Files close after this: the last job must not outlive them, come what may.
            while self._thread.is_alive():
                with contextlib.suppress(KeyboardInterrupt):
                    self._thread.join()

    def put(self, job: Job, count: int = 0) -> None:
        """Hand over a job that holds `count` bytes."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._error or not self._bytes or self._bytes + count <= self._most
            )
            self._raise()
            self._jobs.append((job, count))
            self._bytes += count
            self._changed.notify_all()

    def drain(self) -> None:
        """Return when every job is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._error or not (self._jobs or self._busy))
            self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (found := self._take()) is not None:
            job, count = found
            try:
                job()
            except BaseException as error:  # the caller's to handle, whatever it is
                self._fail(error)
                return
            # Its bytes are free before another job waits for them.
            del job, found
            self._finish(count)

    def _take(self) -> tuple[Job, int] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._ended)
            if not self._jobs:
                return None
            self._busy = True
            return self._jobs.popleft()

    def _finish(self, count: int) -> None:
        with self._changed:
            self._busy = False
            self._bytes -= count
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            self._jobs.clear()
            self._changed.notify_all()
