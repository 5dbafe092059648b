"""The OpenAPI document: bodies from their models, every status a route can answer with."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

_SCHEMAS = "#/components/schemas/"
_ERRORS = {
    400: "The request is wrong; the message names the field.",
    401: "No valid API key.",
    404: "No such model or object.",
    413: "The body is larger than --max-request-mib.",
    415: "The body is not JSON.",
    429: "Too many requests wait already.",
    500: "The server failed on this request.",
    503: "The model is loading, the engine has failed, or the wait for a lane was too long.",
}
# What only some routes answer with.
_MORE = {
    504: "The wait for a lane was too long.",
    529: "Too many requests wait already.",
}
_READING = (401, 404, 500, 503)
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def describe(
    model: type[BaseModel], summary: str, *, stream: bool = False, statuses: tuple[int, ...] = ()
) -> dict[str, Any]:
    """Return what FastAPI's route needs to describe a POST with a body of `model`."""
    schema = model.model_json_schema(ref_template=f"{_SCHEMAS}{{model}}", by_alias=True)
    content = {"application/json": {"schema": schema}}
    return {
        "summary": summary,
        "response_model": None,
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
        "responses": _write_responses((*_ERRORS, *statuses), stream),
    }


def describe_reading(
    summary: str, kind: str = "object", *, statuses: tuple[int, ...] = ()
) -> dict[str, Any]:
    """Return what FastAPI's route needs to describe one without a body; `kind` is a JSON type or
    `text`."""
    responses = _write_responses((*_READING, *statuses))
    schema = {"schema": {"type": "string" if kind == "text" else kind}}
    media = "text/plain" if kind == "text" else "application/json"
    responses[200]["content"] = {media: schema}
    return {"summary": summary, "response_model": None, "responses": responses}


def build_document(app: FastAPI) -> dict[str, Any]:
    """Return the document of all routes, with the parts of bodies among the shared schemas."""
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Error"] = _ERROR_SCHEMA
    for operation in _list_operations(document):
        operation["responses"].pop("422", None)
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        schemas.update(body.get("schema", {}).pop("$defs", {}))
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    return document


def _list_operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in document["paths"].values() for operation in path.values()]


def _write_responses(statuses: tuple[int, ...], stream: bool = False) -> dict[int | str, Any]:
    good: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if stream:
        good["text/event-stream"] = {"schema": {"type": "string"}}
    refused = {"application/json": {"schema": {"$ref": f"{_SCHEMAS}Error"}}}
    responses: dict[int | str, Any] = {200: {"description": "The answer.", "content": good}}
    for status in statuses:
        description = (_ERRORS | _MORE)[status]
        responses[status] = {"description": description, "content": refused}
    return responses
