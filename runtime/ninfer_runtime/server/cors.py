"""Cross-origin requests of browsers, allowed from everywhere or from nowhere."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_METHODS = "GET, POST, DELETE, OPTIONS"
_HEADERS = "authorization, content-type, x-api-key"


class Cors:
    """Answers preflight requests and lets pages of any origin read responses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_open(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["access-control-allow-origin"] = "*"
                headers["access-control-expose-headers"] = "x-request-id, retry-after"
            await send(message)

        if scope["method"] == "OPTIONS":
            await _answer_preflight(scope)(scope, receive, send_open)
        else:
            await self._app(scope, receive, send_open)


def _answer_preflight(scope: Scope) -> Response:
    wanted = Headers(scope=scope).get("access-control-request-headers", _HEADERS)
    headers = {
        "access-control-allow-methods": _METHODS,
        "access-control-allow-headers": wanted,
        "access-control-max-age": "600",
    }
    return Response(status_code=204, headers=headers)
