"""A server from its first moment to its exit status."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from ninfer_runtime.server.service import Service

_log = logging.getLogger(__name__)
# Clients get the end of their answers; then their connections are closed.
_FAREWELL_SECONDS = 2
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    app: Any, service: Service, listener: socket.socket, stop_seconds: float = 10.0
) -> int:
    """Answer on a bound socket until SIGINT or SIGTERM, or until the engine is gone; return the
    exit status: 0 after a stop that was asked for, 1 after a failure, 2 for one of usage.

    The first signal lets answers finish for `stop_seconds`, the second ends them.
    """
    stop = asyncio.Event()
    hurry = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, lambda: hurry.set() if stop.is_set() else stop.set())
    config = uvicorn.Config(
        app, lifespan="off", log_config=None, access_log=False,
        timeout_graceful_shutdown=_FAREWELL_SECONDS,
    )  # fmt: skip
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await service.open()
        await _wait_any(stop.wait(), service.gone.wait(), serving)
        await _stop(service, stop_seconds, hurry)
        server.should_exit = True
        await serving
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
    return _judge(service, asked=stop.is_set())


async def _stop(service: Service, seconds: float, hurry: asyncio.Event) -> None:
    closing = asyncio.create_task(service.close(seconds))
    await _wait_any(closing, hurry.wait())
    if hurry.is_set():
        service.kill()
    await closing


def _judge(service: Service, *, asked: bool) -> int:
    state, why = service.status
    if asked and state != "failed":
        return 0
    _log.error("%s", why if state == "failed" else "the engine process is gone")
    return 2 if service.failure is not None and service.failure.usage else 1


async def _wait_any(*awaitables: Any) -> None:
    tasks = [asyncio.ensure_future(one) for one in awaitables]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task, given in zip(tasks, awaitables, strict=True):
        if task is not given:
            task.cancel()
