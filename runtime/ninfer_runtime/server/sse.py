"""Server-sent events: a response that cannot be silent for long and ends with its reader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_Result = TypeVar("_Result")


class ClientGoneError(Exception):
    """The client has closed its connection; nobody reads what would come."""


def write_event(data: Any, name: str | None = None) -> bytes:
    """Return an event with `data` as JSON."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    head = f"event: {name}\n" if name is not None else ""
    return f"{head}data: {text}\n\n".encode()


class EventStream(Response):
    """Sends `events` as they come, `filler` after `keep_alive` seconds without one.

    When the client is gone the events are closed at once, also while one is waited for.
    """

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncGenerator[bytes], keep_alive: float, filler: bytes = KEEP_ALIVE
    ) -> None:
        super().__init__(headers=_HEADERS)
        self._filler = filler
        del self.headers["content-length"]
        self._events, self._keep_alive = events, keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_gone(receive, self._send_all(send))
        except (ClientGoneError, OSError):
            scope["state"]["record"].cancelled = True
        finally:
            await self._events.aclose()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        pending = asyncio.ensure_future(self._take())
        try:
            while True:
                done, _ = await asyncio.wait({pending}, timeout=self._keep_alive)
                event = pending.result() if done else self._filler
                if event is None:
                    break
                await send({"type": "http.response.body", "body": event, "more_body": True})
                if done:
                    pending = asyncio.ensure_future(self._take())
        finally:
            # A generator cannot be closed while somebody waits for its next item.
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _take(self) -> bytes | None:
        return await anext(self._events, None)


async def until_gone(receive: Receive, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Return the result of `work`; ClientGoneError, with `work` cancelled, if the client goes."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_wait_gone(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _wait_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
