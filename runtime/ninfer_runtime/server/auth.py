"""API keys: where they come from and who may pass."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ninfer_runtime.errors import StartupError
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.errors import error_response

# The page is the same for everyone and asks for the key itself.
_OPEN = ("/", "/health")
_OPEN_FOLDER = "/web/"


class KeyCheck:
    """Lets requests pass that carry one of the keys as `Authorization: Bearer` or `x-api-key`."""

    def __init__(self, app: ASGIApp, keys: tuple[str, ...]) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope) or self._knows(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        record = scope["state"]["record"]
        record.error = "invalid_api_key"
        message = "no valid API key: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'"
        error = ApiError(401, message, "invalid_api_key")
        response = error_response(error, record.path, record.id)
        response.headers["www-authenticate"] = "Bearer"
        await response(scope, receive, send)

    def _knows(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = [token.strip()] if scheme.lower() == "bearer" else []
        given += [headers["x-api-key"]] if "x-api-key" in headers else []
        known = False
        for key in given:
            found = _digest(key.encode("latin-1", "replace"))
            for digest in self._digests:  # all of them: time says nothing about which
                known |= hmac.compare_digest(found, digest)
        return known


def read_keys(path: Path) -> tuple[str, ...]:
    """Return the keys of a file, one a line; blank lines and those with # in front are left out.

    StartupError for a file that cannot be read or has no key.
    """
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(f"API keys cannot be read: {error}", path=path) from None
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise StartupError("the file has no API key", path=path, want="one key a line")
    return keys


def _is_open(scope: Scope) -> bool:
    path = scope["path"]
    return scope["method"] == "OPTIONS" or path in _OPEN or path.startswith(_OPEN_FOLDER)


def _digest(key: bytes) -> bytes:
    # Of equal length whatever the key, so that a comparison does not tell it.
    return hashlib.sha256(key).digest()
