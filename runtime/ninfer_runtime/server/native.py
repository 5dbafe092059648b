"""Routes of the server itself: health, models, tokens, prompts, lanes and properties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ninfer_runtime.server.api_error import invalid
from ninfer_runtime.server.bodies.native import ApplyTemplateBody, DetokenizeBody, TokenizeBody
from ninfer_runtime.server.context import (
    ServerContext,
    find_context,
    read_json,
    run_sized,
)
from ninfer_runtime.server.documents import describe, describe_reading
from ninfer_runtime.server.generation import prepare
from ninfer_runtime.server.readiness import RETRY_SECONDS, describe_health

router = APIRouter()


@router.get("/health", **describe_reading("Whether requests can be answered"))
async def read_health(request: Request) -> Response:
    """Answer 200 when ready, also under load; 503 while loading, and after a failure."""
    status, body = describe_health(*find_context(request).service.status)
    headers = {} if status == 200 else {"retry-after": str(RETRY_SECONDS)}
    return JSONResponse(body, status, headers)


@router.head("/health", include_in_schema=False)
async def check_health(request: Request) -> Response:
    return await read_health(request)


@router.get("/v1/models", **describe_reading("The one model there is"))
async def list_models(request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [_write_model(find_context(request))]})


@router.get("/v1/models/{model:path}", **describe_reading("One model"))
async def read_model(request: Request, model: str) -> Response:
    context = find_context(request)
    context.check_model(model)
    return JSONResponse(_write_model(context))


@router.post("/tokenize", **describe(TokenizeBody, "Tokens of a text"))
async def tokenize(request: Request) -> Response:
    """Give ids of tokens; with `with_pieces` objects of id and piece, a piece that is not UTF-8
    as the list of its bytes."""
    body = TokenizeBody.read(await read_json(request))
    service = find_context(request).service

    def work() -> Response:
        ids = service.encode(body.content, body.parse_special is not False)
        if not body.with_pieces:
            return JSONResponse({"tokens": ids})
        read = service.tokenizer.token_bytes
        return JSONResponse({"tokens": [{"id": id, "piece": _write_piece(read(id))} for id in ids]})

    return await run_sized(len(body.content), work)


@router.post("/detokenize", **describe(DetokenizeBody, "The text of tokens"))
async def detokenize(request: Request) -> Response:
    body = DetokenizeBody.read(await read_json(request))
    service = find_context(request).service
    beyond = next((i for i, id in enumerate(body.tokens) if id >= service.card.vocabulary), None)
    if beyond is not None:
        message = f"tokens[{beyond}]: there are only {service.card.vocabulary} tokens"
        raise invalid(message, f"tokens[{beyond}]", "invalid_value")
    return await run_sized(
        len(body.tokens), lambda: JSONResponse({"content": service.decode(body.tokens)})
    )


@router.post("/apply-template", **describe(ApplyTemplateBody, "The prompt of a conversation"))
async def apply_template(request: Request) -> Response:
    """Give the prompt that the body would be answered with."""
    body = ApplyTemplateBody.read(await read_json(request))
    find_context(request).check_model(body.model)
    prepared = await prepare(request, replace(body.request(), counted=True))
    return JSONResponse({"prompt": prepared.text})


@router.get("/slots", **describe_reading("What the lanes do", "array"))
async def list_slots(request: Request) -> Response:
    return JSONResponse([dict(slot) for slot in find_context(request).service.slots()])


@router.get("/props", **describe_reading("Properties of the server"))
async def read_properties(request: Request) -> Response:
    service = find_context(request).service
    card = service.card
    modalities = {"vision": card.vision, "audio": False}
    return JSONResponse(
        {
            "model_alias": card.id, "total_slots": card.lanes, "modalities": modalities,
            "default_generation_settings": {"n_ctx": card.max_context},
            "reasoning_efforts": list(card.efforts),
        }
    )  # fmt: skip


def _write_piece(data: bytes) -> str | list[int]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


def _write_model(context: ServerContext) -> dict[str, Any]:
    card = context.service.card
    return {
        "id": card.id, "object": "model", "created": card.created, "owned_by": "ninfer",
        "max_model_len": card.max_context, "context_length": card.max_context,
        "context_window": card.max_context, "modalities": {"vision": card.vision},
        "architecture": card.architecture,
        "meta": {
            "n_vocab": card.vocabulary, "n_ctx": card.max_context, "n_params": card.parameters,
            "size": card.bytes,
        },
    }  # fmt: skip
