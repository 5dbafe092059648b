"""Refusals and failures in each API's own shape; the path of a request decides which."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import JSONResponse

from ninfer_runtime.server.api_error import ApiError

_ANTHROPIC = re.compile(r"/v1/messages(/|$)")
_OPENAI_TYPES = {429: "rate_limit_error", 500: "internal_error"}
_ANTHROPIC_TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error",
    529: "overloaded_error",
}  # fmt: skip
# What Anthropic's clients know under another status.
_ANTHROPIC_STATUSES = {"server_overloaded": 529, "request_queue_timeout": 504}


def speaks_anthropic(path: str) -> bool:
    """Return whether the request of this path gets Anthropic's error shape."""
    return _ANTHROPIC.match(path) is not None


def error_status(error: ApiError, path: str) -> int:
    """Return the status under which the API of `path` reports an error."""
    if speaks_anthropic(path):
        return _ANTHROPIC_STATUSES.get(error.code or "", error.status)
    return error.status


def error_body(error: ApiError, path: str, request_id: str) -> dict[str, Any]:
    """Return the JSON object of an error for the API of `path`."""
    status = error_status(error, path)
    if speaks_anthropic(path):
        fallback = "api_error" if status >= 500 else "invalid_request_error"
        kind = _ANTHROPIC_TYPES.get(status, fallback)
        content = {"type": kind, "message": error.message}
        return {"type": "error", "error": content, "request_id": request_id}
    fallback = "service_unavailable_error" if status > 500 else "invalid_request_error"
    kind = _OPENAI_TYPES.get(status, fallback)
    content = {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    return {"error": content}


def error_response(error: ApiError, path: str, request_id: str) -> JSONResponse:
    """Return the response that carries an error."""
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    body = error_body(error, path, request_id)
    return JSONResponse(body, error_status(error, path), headers)


def internal_error() -> ApiError:
    """Return what a client hears of a fault of the server; the log has the rest."""
    return ApiError(500, "the server failed on this request; its log says why", "internal_error")
