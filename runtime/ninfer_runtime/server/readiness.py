"""What every route but the health check and the page answers while there is no engine."""

from __future__ import annotations

from typing import Any, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.errors import error_response

READY, LOADING, FAILED, STOPPING = "ready", "loading", "failed", "stopping"
RETRY_SECONDS = 2
# These say themselves how the engine is doing: the check, and the page with its parts.
_OPEN = ("/health", "/")
_OPEN_FOLDER = "/web/"


class Reporting(Protocol):
    """Whatever knows how the engine is doing."""

    @property
    def status(self) -> tuple[str, Any]: ...


class Readiness:
    """Answers 503 until the engine is ready, and when it is not any more."""

    def __init__(self, app: ASGIApp, service: Reporting) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, detail = self._service.status
        if scope["type"] != "http" or state == READY or _is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        record = scope["state"]["record"]
        error = explain_state(state, detail)
        record.error = error.code
        await error_response(error, record.path, record.id)(scope, receive, send)


def _is_open(path: str) -> bool:
    return path in _OPEN or path.startswith(_OPEN_FOLDER)


def explain_state(state: str, detail: Any) -> ApiError:
    """Return what a request hears in a state other than ready."""
    if state == LOADING:
        message = f"the model is loading: {float(detail):.0f}%"
        return ApiError(503, message, "model_loading", retry_after=RETRY_SECONDS)
    if state == STOPPING:
        message = "the server is shutting down"
    else:
        message = f"the engine has failed: {detail}"
    return ApiError(503, message, "service_unavailable", retry_after=RETRY_SECONDS)


def describe_health(state: str, detail: Any) -> tuple[int, dict[str, Any]]:
    """Return status and body of the health check."""
    if state == READY:
        return 200, {"status": "ok"}
    if state == LOADING:
        return 503, {"status": "loading", "percent": round(float(detail), 1)}
    if state == STOPPING:
        return 503, {"status": "stopping"}
    return 503, {"status": "unavailable", "reason": str(detail)}
