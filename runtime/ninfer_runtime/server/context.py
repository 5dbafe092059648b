"""What every route has at hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request

from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.backend import Backend
from ninfer_runtime.server.bodies.json_text import parse_json
from ninfer_runtime.server.http_options import HttpOptions
from ninfer_runtime.server.limits import read_body
from ninfer_runtime.server.media_urls import MediaFetcher
from ninfer_runtime.server.request_record import RequestRecord

Result = TypeVar("Result")
_JSON = ("application/json", "text/json")
# Smaller ones are worked on sooner than handed over.
_LARGE = 1 << 16


@dataclass(frozen=True)
class ServerContext:
    """The service and the settings of the HTTP side; one for the whole application."""

    service: Backend
    options: HttpOptions
    media: MediaFetcher

    def check_model(self, name: str | None) -> None:
        """Raise ApiError 404 for a model that is not here; None is the one there is."""
        known = self.service.card.id
        if name is not None and name != known:
            message = f"model {name[:200]!r} is not here, this server has {known!r}"
            raise ApiError(404, message, "model_not_found", "model")


def find_context(request: Request) -> ServerContext:
    return request.app.state.context


def find_record(request: Request) -> RequestRecord:
    """Return the record of the request, to fill in."""
    return request.scope["state"]["record"]


async def read_json(request: Request) -> object:
    """Return the JSON value of the body; ApiError 400, 413 or 415."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and kind not in _JSON and not kind.endswith("+json"):
        message = f"content type {kind[:80]!r} is not supported, send application/json"
        raise ApiError(415, message, "unsupported_media_type")
    data = await read_body(request, find_context(request).options.request_bytes)
    return await run_sized(len(data), lambda: parse_json(data))


async def run_sized(size: int, act: Callable[[], Result]) -> Result:
    """Return what `act` returns: work on `size` bytes or so, in a thread when that is much."""
    return act() if size < _LARGE else await asyncio.to_thread(act)
