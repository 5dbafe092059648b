"""GET /docs: the OpenAPI document for people, without anything from outside."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

router = APIRouter()

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:62em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;width:100%}td{border-top:1px solid #8885;padding:.2em .6em;"
    "vertical-align:top}code{font-size:.95em}summary{cursor:pointer;padding:.3em 0}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8bf}}"
)
_REFERENCE = "#/components/schemas/"


@router.get("/docs", include_in_schema=False)
async def read_docs(request: Request) -> Response:
    return HTMLResponse(write_page(request.app.openapi()))


def write_page(document: Mapping[str, Any]) -> str:
    """Return the page of an OpenAPI document: routes, their fields and the objects in them."""
    schemas = document["components"]["schemas"]
    parts = [*_write_routes(document["paths"]), "<h2>Objects</h2>"]
    for name, schema in sorted(schemas.items()):
        parts.append(f'<h3 id="{_quote(name)}">{_quote(name)}</h3>{_write_fields(schema)}')
    title = _quote(document["info"]["title"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title} API</title>'
        f"<style>{_STYLE}</style><h1>{title} API</h1>"
        f'<p>The same for programs: <a href="openapi.json">openapi.json</a></p>{"".join(parts)}'
    )


def _write_routes(paths: Mapping[str, Any]) -> Iterator[str]:
    for path, operations in paths.items():
        for method, operation in operations.items():
            yield f"<details><summary><code>{method.upper()} {_quote(path)}</code> "
            yield f"{_quote(operation.get('summary', ''))}</summary>"
            yield f"<p>{_quote(operation.get('description', ''))}</p>"
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            yield f"{_write_fields(body.get('schema', {}))}</details>"


def _write_fields(schema: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{_quote(name)}</code><td>{_write_type(field)}"
        f"<td>{_quote(field.get('description', ''))}"
        for name, field in schema.get("properties", {}).items()
    )
    return f"<p>{_quote(schema.get('description', ''))}</p><table>{rows}</table>"


def _write_type(field: Mapping[str, Any]) -> str:
    if "$ref" in field:
        name = _quote(str(field["$ref"]).removeprefix(_REFERENCE))
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in field:
        return " or ".join(_write_type(each) for each in field["anyOf"])
    if "enum" in field or "const" in field:
        values = field.get("enum", [field.get("const")])
        return ", ".join(f"<code>{_quote(str(value))}</code>" for value in values)
    if field.get("type") == "array":
        return f"array of {_write_type(field.get('items', {}))}"
    return _quote(str(field.get("type", "anything")))


def _quote(text: str) -> str:
    return html.escape(text)
