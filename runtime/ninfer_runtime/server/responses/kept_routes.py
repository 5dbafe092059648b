"""Responses that are kept: GET, DELETE and their input."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ninfer_runtime.server.api_error import ApiError, invalid
from ninfer_runtime.server.documents import describe_reading
from ninfer_runtime.server.responses.routes import find_store
from ninfer_runtime.server.responses.store import Item

router = APIRouter()

_PATH = "/v1/responses/{response_id}"
_MOST = 100
_PAGE = 20
# `include` and `include_obfuscation` have no effect: all there is to include is in the object.
_QUIET = ("include", "include[]", "include_obfuscation")


@router.get(_PATH, **describe_reading("A response that is kept", statuses=(400,)))
async def read_response(request: Request, response_id: str) -> Response:
    """Give the response as it was answered."""
    stated = _read_query(request, ("stream",))
    if stated.get("stream", "false") != "false":
        raise invalid("stream: kept responses are not streamed again", "stream", "invalid_value")
    return JSONResponse(dict(find_store(request).find(response_id).response))


@router.delete(_PATH, **describe_reading("Forget a response", statuses=(400,)))
async def delete_response(request: Request, response_id: str) -> Response:
    """Forget the response. Those that go on from it are not touched."""
    _read_query(request, ())
    find_store(request).delete(response_id)
    return JSONResponse({"id": response_id, "object": "response", "deleted": True})


@router.post(
    f"{_PATH}/cancel",
    **describe_reading("Refused: nothing runs in the background", statuses=(400,)),
)
async def cancel_response(request: Request, response_id: str) -> Response:
    """Refuse: a response is cancelled by closing its connection."""
    find_store(request).find(response_id)
    raise invalid(f"response {response_id[:100]!r} is not a background response")


@router.get(
    f"{_PATH}/input_items", **describe_reading("What the model saw of a response", statuses=(400,))
)
async def list_input(request: Request, response_id: str) -> Response:
    """List all items the model saw, those of earlier responses too."""
    stated = _read_query(request, ("limit", "order", "after", "before"))
    items = list(find_store(request).find(response_id).input)
    order = stated.get("order", "desc")
    if order not in ("asc", "desc"):
        raise invalid(f"order: want asc or desc, got {order[:80]!r}", "order", "invalid_value")
    if order == "desc":
        items.reverse()
    items = _cut(items, stated)
    limit = _read_limit(stated.get("limit"))
    page = items[:limit]
    ends = {name: page[i]["id"] if page else None for name, i in (("first_id", 0), ("last_id", -1))}
    return JSONResponse({"object": "list", "data": page, **ends, "has_more": len(items) > limit})


def _read_query(request: Request, known: tuple[str, ...]) -> dict[str, str]:
    """Return the parameters of the address; ApiError 400 naming one that is not known."""
    stated: dict[str, Any] = dict(request.query_params)
    for name in stated:
        if name not in known and name not in _QUIET:
            raise invalid(f"unknown parameter {name[:100]}", name[:100], "unknown_parameter")
    return stated


def _cut(items: list[Item], stated: dict[str, str]) -> list[Item]:
    """Return the items behind `after` and in front of `before`."""
    ids = [item["id"] for item in items]
    begin, end = 0, len(items)
    for name in ("after", "before"):
        if name not in stated:
            continue
        if stated[name] not in ids:
            raise ApiError(404, f"{name}: there is no such item", "item_not_found", name)
        if name == "after":
            begin = ids.index(stated[name]) + 1
        else:
            end = ids.index(stated[name])
    return items[begin:end]


def _read_limit(text: str | None) -> int:
    if text is None:
        return _PAGE
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MOST):
        raise invalid(f"limit: want 1 to {_MOST}, got {text[:20]!r}", "limit", "invalid_value")
    return int(text)
