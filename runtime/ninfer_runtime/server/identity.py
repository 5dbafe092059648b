"""The first thing a request meets and the last a response passes: id, record and last resort."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ninfer_runtime.server.errors import error_response, internal_error, speaks_anthropic
from ninfer_runtime.server.request_record import RequestRecord

_log = logging.getLogger(__name__)
_SAFE = re.compile(r"[A-Za-z0-9._-]{1,128}")
_DOUBLED = "/v1/v1/"


class RequestIdentity:
    """Gives every request an id and a record, and every response `x-request-id`.

    A path that begins with /v1/v1/ is read as /v1/: base addresses are often written twice.
    `reporters` get the record of every POST when its response has ended, however it ended.
    """

    def __init__(self, app: ASGIApp, reporters: Sequence[Callable[[RequestRecord], None]]) -> None:
        self._app, self._reporters = app, reporters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith(_DOUBLED):
            scope = {**scope, "path": scope["path"][3:]}
        record = RequestRecord(_find_id(scope), scope["method"], scope["path"])
        scope.setdefault("state", {})["record"] = record

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = record.id
                if speaks_anthropic(record.path):  # its clients look for it under this name
                    headers["request-id"] = record.id
            elif message["type"] == "http.response.body" and not message.get("more_body"):
                self._end(record)  # first: whoever has the answer can count on its record
            await send(message)

        try:
            await self._guard(scope, receive, send_named, record)
        finally:
            self._end(record)

    def _end(self, record: RequestRecord) -> None:
        if record.total is not None:
            return
        record.end()
        if record.method == "POST":
            for report in self._reporters:
                report(record)

    async def _guard(
        self, scope: Scope, receive: Receive, send: Send, record: RequestRecord
    ) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception:
            _log.exception("request %s failed", record.id)
            record.error = record.error or "internal_error"
            if record.status is not None:
                raise
            response = error_response(internal_error(), record.path, record.id)
            await response(scope, receive, send)


def _find_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _SAFE.fullmatch(given) else f"req_{secrets.token_hex(8)}"
