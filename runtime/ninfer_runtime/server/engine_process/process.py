"""The engine process as the HTTP process sees it: started, spoken to, watched, stopped."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from multiprocessing.util import Finalize
from typing import Any

from ninfer_runtime.server.engine_process.channel import Channel
from ninfer_runtime.server.engine_process.entry import EngineSetup, run_engine_process
from ninfer_runtime.server.engine_process.messages import Stop

# Beyond the limit of an orderly stop, for rounds and chunks that are under way.
_STOP_MARGIN = 5.0


class EngineProcess:
    """`receive` gets every Report and `ended` the exit status, None when it could not be learned,
    both in a thread of this object."""

    def __init__(
        self,
        setup: EngineSetup,
        receive: Callable[[Any], None],
        ended: Callable[[int | None], None],
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=run_engine_process, args=(setup, theirs), name="ninfer engine"
        )
        self._process.start()
        # As long as this side holds the other end too, the end of the process goes unseen.
        theirs.close()
        self._ended, self._margin = ended, _STOP_MARGIN
        self._gone = threading.Event()
        self._channel = Channel(self._connection, receive, self._notice_end)
        self._channel.start()
        # Python waits for child processes when it ends; this one waits for its pipe to close.
        self._finalize = Finalize(self, self._connection.close, exitpriority=10)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def send(self, message: Any) -> None:
        """Send a message, sooner or later; one to a process that is gone is lost."""
        self._channel.send(message)

    def stop(self, limit: float) -> None:
        """Let requests finish for `limit` seconds, then end the process; waits until it is gone."""
        self._channel.send(Stop(limit))
        if not self._gone.wait(limit + self._margin):
            self.kill()
            self._gone.wait(_STOP_MARGIN)

    def kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()

    def _notice_end(self) -> None:
        # A process that closed its pipe is about to end; one that does not is ended.
        self._process.join(_STOP_MARGIN)
        self.kill()
        self._process.join()
        self._gone.set()
        self._ended(self._process.exitcode)
