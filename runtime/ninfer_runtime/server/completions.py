"""POST /v1/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ninfer_runtime.server.batch import Batch, begin_all
from ninfer_runtime.server.bodies.completions import CompletionBody
from ninfer_runtime.server.chat_objects import write_closing
from ninfer_runtime.server.context import find_context, find_record, read_json
from ninfer_runtime.server.documents import describe
from ninfer_runtime.server.events import Delta, Finished
from ninfer_runtime.server.generation import guard_events
from ninfer_runtime.server.request_record import RequestRecord
from ninfer_runtime.server.sse import DONE, EventStream, until_gone, write_event
from ninfer_runtime.server.text_objects import TextChoice, TextObjects
from ninfer_runtime.server.usage import write_usage

router = APIRouter()


@router.post("/v1/completions", **describe(CompletionBody, "Go on with a text", stream=True))
async def complete_text(request: Request) -> Response:
    """Continue one or several texts, whole or as a stream of chunks."""
    body = CompletionBody.read(await read_json(request))
    context, record = find_context(request), find_record(request)
    context.check_model(body.model)
    record.stream, record.model = bool(body.stream), context.service.card.id
    objects = TextObjects(context.service.card.id, body.logprobs is not None)
    if not body.stream:
        return JSONResponse(await until_gone(request.receive, _collect(request, body, objects)))
    batch = await until_gone(request.receive, begin_all(request, body.requests(), body.n or 1))
    usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    events = _stream(batch, objects, record, bool(body.echo), usage)
    return EventStream(guard_events(events, record), context.options.keep_alive)


async def _collect(request: Request, body: CompletionBody, objects: TextObjects) -> dict[str, Any]:
    batch = await begin_all(request, body.requests(), body.n or 1)
    texts = [TextChoice([echo] if body.echo else []) for echo in batch.prompts()]
    finished: dict[int, Finished] = {}
    async with aclosing(batch.follow(find_record(request))) as items:
        async for index, item in items:
            if isinstance(item, Finished):
                finished[index] = item
            else:
                texts[index].add(item)
    ends = _sort(finished)
    return objects.completion(texts, ends, batch.join_usage(ends))


async def _stream(
    batch: Batch, objects: TextObjects, record: RequestRecord, echo: bool, usage: bool
) -> AsyncGenerator[bytes]:
    without: dict[str, Any] = {"usage": None} if usage else {}
    texts = [TextChoice() for _ in batch.prompts()]
    finished: dict[int, Finished] = {}
    async with aclosing(batch.follow(record)) as items:
        for index, prompt in enumerate(batch.prompts() if echo else ()):
            chunk = objects.piece(index, Delta(content=prompt), texts[index])
            yield write_event({**(chunk or {}), **without})
        async for index, item in items:
            if isinstance(item, Finished):
                finished[index] = item
                chunk = objects.ending(index, item)
                if len(finished) == len(texts) and not usage:
                    ends = _sort(finished)
                    chunk |= write_closing(ends, batch.join_usage(ends))
            else:
                chunk = objects.piece(index, item, texts[index])
            if chunk is not None:
                yield write_event({**chunk, **without})
    if usage:
        total = batch.join_usage(_sort(finished))
        last = {**objects.chunk([]), "usage": write_usage(total)}
        yield write_event(last | write_closing(_sort(finished), total))
    yield DONE


def _sort(finished: dict[int, Finished]) -> list[Finished]:
    return [finished[index] for index in range(len(finished))]
