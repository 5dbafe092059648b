"""GET / and its parts: a page that needs nothing from outside and runs only its own files."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.resources import files

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ninfer_runtime.server.context import find_context
from ninfer_runtime.server.readiness import READY, RETRY_SECONDS

router = APIRouter()

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
_PAGE = "index.html"
_HEADERS = {
    # What a model says is only ever text. Should it become markup all the same, this keeps it
    # from running, loading or sending anything.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


@router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
async def read_page(request: Request) -> Response:
    """Send the page; with status 503 while there is no engine, which the page then tells."""
    ready = find_context(request).service.status[0] == READY
    more = {} if ready else {"retry-after": str(RETRY_SECONDS)}
    return _send(_PAGE, 200 if ready else 503, more)


@router.api_route("/web/{name}", methods=["GET", "HEAD"], include_in_schema=False)
async def read_part(name: str) -> Response:
    """Send a file of the page, also while there is no engine."""
    if name == _PAGE or name not in _read_files():
        raise HTTPException(404)
    return _send(name)


def _send(name: str, status: int = 200, more: Mapping[str, str] | None = None) -> Response:
    kind = _KINDS[name[name.rindex(".") :]]
    headers = {**_HEADERS, "content-type": kind, **(more or {})}
    return Response(_read_files()[name], status, headers)


@functools.cache
def _read_files() -> Mapping[str, bytes]:
    folder = files("ninfer_runtime.server.web")
    return {
        item.name: item.read_bytes() for item in folder.iterdir() if item.name.endswith((*_KINDS,))
    }
