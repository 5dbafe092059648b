"""A server from its first to its last moment, and what it says of itself meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from typing import TYPE_CHECKING, cast

from ninfer_formats.errors import printable
from ninfer_runtime.server.app import create_app
from ninfer_runtime.server.readiness import FAILED, LOADING, READY
from ninfer_runtime.server.running import serve
from ninfer_runtime.server.service import Service
from ninfer_tools.serve_session.listening import show_address

if TYPE_CHECKING:
    from ninfer_runtime.server.backend import Backend
    from ninfer_runtime.server.engine_process.entry import EngineSetup
    from ninfer_runtime.server.http_options import HttpOptions
    from ninfer_runtime.server.service_options import ServiceOptions

_log = logging.getLogger("ninfer.server")
_LOOK_SECONDS = 0.1
_PROGRESS_SECONDS = 5.0


async def run_server(
    setup: EngineSetup,
    options: ServiceOptions,
    http: HttpOptions,
    sock: socket.socket,
    drain_seconds: float,
) -> int:
    """Serve until a signal or the end of the engine; return the exit code."""
    service = Service(setup, options)
    app = create_app(cast("Backend", service), http)
    telling = asyncio.create_task(_tell(service, sock))
    try:
        code = await serve(app, service, sock, drain_seconds)
    finally:
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling
    if code == 0:
        _log.info("ended")
    return code


async def _tell(service: Service, sock: socket.socket) -> None:
    """Say how the start goes, and when the server is told to end."""
    began = shown = time.monotonic()
    while service.status[0] == LOADING:
        await asyncio.sleep(_LOOK_SECONDS)
        now = time.monotonic()
        if service.status[0] == LOADING and now >= shown + _PROGRESS_SECONDS:
            shown = now
            _log.info("loading: %.0f%%", service.status[1])
    if service.status[0] == READY:
        _log.info(
            "ready after %.1f s: %s at %s/v1", time.monotonic() - began,
            printable(service.card.id), show_address(sock),
        )  # fmt: skip
    while service.status[0] == READY:
        await asyncio.sleep(_LOOK_SECONDS)
    if service.status[0] == FAILED:
        service.kill()  # without tokenizer or template the engine is of no use
        return
    busy = sum(bool(slot.get("is_processing")) for slot in service.slots())
    _log.info("ending; requests under way: %d", busy)
