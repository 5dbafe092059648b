"""Bodies up to a size, refused before anything looks into them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NoReturn

from starlette.requests import Request

from ninfer_runtime.server.api_error import ApiError

# A client that still sends would lose the answer when its connection is closed at once.
_DRAIN_SECONDS, _PAUSE_SECONDS = 3.0, 0.3


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body; ApiError 413 when it is, or says it is, larger than `limit` bytes."""
    stated = request.headers.get("content-length", "")
    stream = request.stream()
    if stated.isdigit() and int(stated) > limit:
        await _refuse(stream, limit)
    parts, size = [], 0
    async for part in stream:
        size += len(part)
        if size > limit:
            parts.clear()
            await _refuse(stream, limit)
        parts.append(part)
    return b"".join(parts)


async def _refuse(stream: AsyncIterator[bytes], limit: int) -> NoReturn:
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while True:
                await asyncio.wait_for(anext(stream), _PAUSE_SECONDS)
    except (TimeoutError, StopAsyncIteration):
        pass
    message = f"request body is larger than {limit} bytes (--max-request-mib)"
    raise ApiError(413, message, "request_too_large")
