"""A server from its first to its last moment: loading, serving, draining."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import uvicorn

from ninfer_formats.errors import printable
from ninfer_runtime.server.app import create_app
from ninfer_runtime.server.readiness import FAILED, LOADING, READY
from ninfer_runtime.server.service import Service
from ninfer_tools.serve_session.listening import show_address

if TYPE_CHECKING:
    from ninfer_runtime.server.engine_process.entry import EngineSetup
    from ninfer_runtime.server.http_options import HttpOptions
    from ninfer_runtime.server.service_options import ServiceOptions

_log = logging.getLogger("ninfer.server")
_LOOK_SECONDS = 0.1
_PROGRESS_SECONDS = 5.0
# What a connection gets to take the rest of an answer that is complete.
_GOODBYE_SECONDS = 5
_KEEP_ALIVE_SECONDS = 75
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _HttpServer(uvicorn.Server):
    """Leaves signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Lifetime:
    """`run` serves until a signal or the end of the engine, and returns the exit code."""

    def __init__(
        self,
        setup: EngineSetup,
        options: ServiceOptions,
        http: HttpOptions,
        sock: socket.socket,
        drain_seconds: float,
    ) -> None:
        self._setup, self._options, self._http = setup, options, http
        self._sock, self._drain = sock, drain_seconds
        self._told: list[int] = []

    async def run(self) -> int:
        """Return 0 after a signal; 1, with one line on stderr, when the engine has failed."""
        self._service = Service(self._setup, self._options)
        app = create_app(self._service, self._http)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", server_header=False,
            timeout_graceful_shutdown=_GOODBYE_SECONDS, timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )  # fmt: skip
        server = _HttpServer(config)
        self._catch_signals()
        serving = asyncio.create_task(server.serve(sockets=[self._sock]))
        await self._service.open()
        code = await self._watch(serving)
        await self._close(code)
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        return code

    async def _watch(self, serving: asyncio.Task[None]) -> int:
        """Return the exit code once there is a reason to end."""
        began = shown = time.monotonic()
        ready = False
        while not self._told:
            state, detail = self._service.status
            if state == FAILED or self._service.gone.is_set():
                return self._tell_failure(str(detail))
            if serving.done():
                print("the HTTP server has ended", file=sys.stderr)
                return 1
            now = time.monotonic()
            if state == READY and not ready:
                ready = True
                self._tell_ready(now - began)
            if state == LOADING and now >= shown + _PROGRESS_SECONDS:
                shown = now
                _log.info("loading: %.0f%%", detail)
            await asyncio.sleep(_LOOK_SECONDS)
        return 0

    async def _close(self, code: int) -> None:
        """End the engine: in order while it serves, at once while it loads or has failed."""
        orderly = self._service.status[0] == READY
        if self._told:
            name = signal.Signals(self._told[0]).name
            busy = sum(bool(slot.get("is_processing")) for slot in self._service.slots())
            _log.info("%s: ending, %d requests may go on for %g s", name, busy, self._drain)
        closing = asyncio.create_task(self._service.close(self._drain if orderly else 0.0))
        await asyncio.sleep(0)
        if not orderly:
            self._kill_engine()
        await closing
        if code == 0:
            _log.info("ended")

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._hear, number)

    def _hear(self, number: int) -> None:
        self._told.append(number)
        if len(self._told) > 1:
            self._kill_engine()
            print("ended at once", file=sys.stderr, flush=True)
            os._exit(128 + number)

    def _kill_engine(self) -> None:
        pid = self._service.engine_pid
        if pid is not None and not self._service.gone.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _tell_ready(self, seconds: float) -> None:
        card = self._service.card
        _log.info(
            "ready after %.1f s: %s serves %s/v1", seconds, printable(card.id),
            show_address(self._sock),
        )  # fmt: skip

    def _tell_failure(self, detail: str) -> int:
        failure = self._service.failure
        why = detail if failure is None else failure.why
        print(f"the engine has failed: {printable(why, 4000)}", file=sys.stderr, flush=True)
        return 1
