"""The application: routes, and what every request passes through."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from ninfer_runtime.server import chat, completions, docs_page, metrics, native
from ninfer_runtime.server.anthropic import routes as anthropic
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.auth import KeyCheck
from ninfer_runtime.server.backend import Backend
from ninfer_runtime.server.context import ServerContext, find_record
from ninfer_runtime.server.cors import Cors
from ninfer_runtime.server.documents import build_document
from ninfer_runtime.server.errors import error_response
from ninfer_runtime.server.http_options import HttpOptions
from ninfer_runtime.server.identity import RequestIdentity
from ninfer_runtime.server.log_file import JsonLines
from ninfer_runtime.server.media_urls import MediaFetcher
from ninfer_runtime.server.readiness import Readiness
from ninfer_runtime.server.request_log import RequestLog
from ninfer_runtime.server.responses import kept_routes, routes
from ninfer_runtime.server.responses.store import ResponseStore
from ninfer_runtime.server.sse import ClientGoneError
from ninfer_runtime.server.web import page

_GONE = 499  # nobody reads it; the request log does


def create_app(
    service: Backend, options: HttpOptions | None = None, media: MediaFetcher | None = None
) -> FastAPI:
    """Return the application that answers with `service`."""
    options = options or HttpOptions()
    app = FastAPI(title="NInfer", version="1", redoc_url=None, docs_url=None)
    app.state.context = ServerContext(service, options, media or MediaFetcher(options.media_urls))
    app.state.metrics = metrics.Metrics(service)
    app.state.responses = ResponseStore(options.response_records, options.response_bytes)
    parts = (chat, completions, routes, kept_routes, anthropic, native, metrics, docs_page, page)
    for part in parts:
        app.include_router(part.router)
    app.state.routes = [route for part in parts for route in part.router.routes]
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    _serve_document(app)
    # The last one added is the first a request meets.
    if options.keys:
        app.add_middleware(KeyCheck, keys=options.keys)
    app.add_middleware(Readiness, service=service)
    if options.cors:
        app.add_middleware(Cors)
    reporters = (app.state.metrics.report, _open_log(options).report)
    app.add_middleware(RequestIdentity, reporters=reporters)
    return app


def _open_log(options: HttpOptions) -> RequestLog:
    path = options.request_log
    lines = None if path is None else JsonLines(path, options.log_bytes, options.log_keep)
    return RequestLog(lines)


def _serve_document(app: FastAPI) -> None:
    def read_document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = build_document(app)
        return app.openapi_schema

    app.openapi = read_document  # pyright: ignore[reportAttributeAccessIssue]


async def _answer_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    record = find_record(request)
    record.note_refusal(error.code, error.param)
    return error_response(error, record.path, record.id)


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    record = find_record(request)
    messages = {
        404: f"there is nothing at {record.path[:200]}",
        405: f"{record.method} is not supported at {record.path[:200]}",
    }
    message = messages.get(error.status_code, error.detail)
    codes = {404: "not_found", 405: "method_not_allowed"}
    record.error = codes.get(error.status_code, "error")
    refusal = ApiError(error.status_code, message, record.error)
    response = error_response(refusal, record.path, record.id)
    response.headers.update(error.headers or {})
    if error.status_code == 405:
        response.headers["allow"] = ", ".join(_list_methods(request))
    return response


def _list_methods(request: Request) -> list[str]:
    """Return the methods of a path; a path may have several routes, each with its own."""
    routes = request.app.state.routes
    found = [route for route in routes if route.matches(request.scope)[0] != Match.NONE]
    same = [route for route in found if route.path == found[0].path]
    return sorted({method for route in same for method in route.methods})


async def _answer_nobody(request: Request, error: Exception) -> Response:
    find_record(request).cancelled = True
    return Response(status_code=_GONE)


_HANDLERS = {
    ApiError: _answer_refusal,
    HTTPException: _answer_http,
    ClientGoneError: _answer_nobody,
    ClientDisconnect: _answer_nobody,
}
