"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ninfer_runtime.server.backend import Answer
from ninfer_runtime.server.bodies.chat import ChatBody
from ninfer_runtime.server.chat_objects import ChatObjects, ChoiceText, write_closing
from ninfer_runtime.server.context import find_context, find_record, read_json
from ninfer_runtime.server.documents import describe
from ninfer_runtime.server.events import Finished
from ninfer_runtime.server.generation import begin, follow, guard_events
from ninfer_runtime.server.request_record import RequestRecord
from ninfer_runtime.server.requests import ChatRequest
from ninfer_runtime.server.sse import DONE, EventStream, until_gone, write_event
from ninfer_runtime.server.usage import join_usage

router = APIRouter()


@router.post("/v1/chat/completions", **describe(ChatBody, "Go on with a conversation", stream=True))
async def complete_chat(request: Request) -> Response:
    """Answer the conversation, whole or as a stream of chunks."""
    body = ChatBody.read(await read_json(request))
    context, record = find_context(request), find_record(request)
    context.check_model(body.model)
    record.stream, record.model = bool(body.stream), context.service.card.id
    wanted = body.request()
    objects = ChatObjects(context.service.card.id, bool(body.logprobs))
    if not body.stream:
        return JSONResponse(await until_gone(request.receive, _collect(request, wanted, objects)))
    answer = await until_gone(request.receive, begin(request, wanted))
    usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    events = _stream(answer, objects, record, wanted.answer.choices, usage)
    return EventStream(guard_events(events, record), context.options.keep_alive)


async def _collect(request: Request, wanted: ChatRequest, objects: ChatObjects) -> dict[str, Any]:
    answer = await begin(request, wanted)
    texts = [ChoiceText() for _ in range(wanted.answer.choices)]
    finished: dict[int, Finished] = {}
    async with aclosing(follow(answer, find_record(request))) as items:
        async for index, item in items:
            if isinstance(item, Finished):
                finished[index] = item
            else:
                texts[index].add(item)
    return objects.completion(texts, [finished[index] for index in range(len(texts))])


async def _stream(
    answer: Answer, objects: ChatObjects, record: RequestRecord, choices: int, usage: bool
) -> AsyncGenerator[bytes]:
    # With a usage chunk to come, all others say that they have none.
    without: dict[str, Any] = {"usage": None} if usage else {}
    finished: list[Finished] = []
    async with aclosing(follow(answer, record)) as items:
        for index in range(choices):
            yield write_event({**objects.opening(index), **without})
        async for index, item in items:
            if not isinstance(item, Finished):
                chunk = objects.piece(index, item)
                if chunk is not None:
                    yield write_event({**chunk, **without})
                continue
            finished.append(item)
            chunk = {**objects.ending(index, item), **without}
            if len(finished) == choices and not usage:
                chunk |= write_closing(finished, join_usage(finished))
            yield write_event(chunk)
    if usage:
        yield write_event(objects.summary(finished))
    yield DONE
