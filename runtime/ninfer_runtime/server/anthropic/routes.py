"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ninfer_runtime.server.anthropic.body import AnthropicBody, CountTokensBody
from ninfer_runtime.server.anthropic.objects import MessageObjects
from ninfer_runtime.server.anthropic.output import Blocks
from ninfer_runtime.server.anthropic.planning import EFFORT, plan_message
from ninfer_runtime.server.backend import Answer
from ninfer_runtime.server.context import find_context, find_record, read_json
from ninfer_runtime.server.documents import describe
from ninfer_runtime.server.events import Finished
from ninfer_runtime.server.generation import begin, follow, guard_events, prepare
from ninfer_runtime.server.places import naming
from ninfer_runtime.server.request_record import RequestRecord
from ninfer_runtime.server.sse import EventStream, until_gone, write_event

router = APIRouter()

# What Anthropic's clients know instead of 429 and 503.
_STATUSES = (504, 529)
_PING = write_event({"type": "ping"}, "ping")


@router.post(
    "/v1/messages",
    **describe(AnthropicBody, "Go on with a conversation", stream=True, statuses=_STATUSES),
)
async def create_message(request: Request) -> Response:
    """Answer the conversation, whole or as a stream of events."""
    body = AnthropicBody.read(await read_json(request))
    context, record = find_context(request), find_record(request)
    record.stream, record.model = bool(body.stream), context.service.card.id
    if not body.stream:
        return JSONResponse(await until_gone(request.receive, _collect(request, body)))
    answer = await until_gone(request.receive, _begin(request, body))
    events = _stream(answer, await _write_objects(request, body, answer), body, record)
    return EventStream(guard_events(events, record), context.options.keep_alive, _PING)


@router.post("/v1/messages/count_tokens", **describe(CountTokensBody, "Count the tokens of it"))
async def count_tokens(request: Request) -> Response:
    """Count what the model would see of the conversation."""
    plan = plan_message(CountTokensBody.read(await read_json(request)))
    with naming(plan.places):
        prepared = await prepare(request, replace(plan.wanted, counted=True), EFFORT)
    return JSONResponse({"input_tokens": len(prepared.ids)})


async def _begin(request: Request, body: AnthropicBody) -> Answer:
    plan = plan_message(body)
    with naming(plan.places):
        return await begin(request, plan.wanted, EFFORT)


async def _write_objects(request: Request, body: AnthropicBody, answer: Answer) -> MessageObjects:
    context, cached = find_context(request).service.card.max_context, await answer.admitted()
    return MessageObjects(body.model, answer.prompt_tokens, cached, context, body.max_tokens)


async def _collect(request: Request, body: AnthropicBody) -> dict[str, Any]:
    answer = await _begin(request, body)
    objects = await _write_objects(request, body, answer)
    blocks = Blocks(body.omits_thinking)
    message: dict[str, Any] = {}
    async with aclosing(follow(answer, find_record(request))) as items:
        async for _, item in items:
            if not isinstance(item, Finished):
                list(blocks.add(item))
                continue
            list(blocks.finish())
            message = objects.ended(blocks.blocks, item)
    return message


async def _stream(
    answer: Answer, objects: MessageObjects, body: AnthropicBody, record: RequestRecord
) -> AsyncGenerator[bytes]:
    blocks = Blocks(body.omits_thinking)
    async with aclosing(follow(answer, record)) as items:
        yield _write({"type": "message_start", "message": objects.begun()})
        yield _PING
        async for _, item in items:
            done = isinstance(item, Finished)
            for event in blocks.finish() if done else blocks.add(item):
                yield _write(event)
            if done:
                yield _write(objects.delta(item))
        yield _write({"type": "message_stop"})


def _write(event: dict[str, Any]) -> bytes:
    return write_event(event, event["type"])
