"""POST /v1/responses and /v1/responses/input_tokens."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.backend import Answer
from ninfer_runtime.server.context import find_context, find_record, read_json
from ninfer_runtime.server.documents import describe
from ninfer_runtime.server.events import LENGTH, Finished
from ninfer_runtime.server.generation import begin, follow, guard_events, prepare
from ninfer_runtime.server.places import naming
from ninfer_runtime.server.request_record import RequestRecord
from ninfer_runtime.server.responses.body import InputTokensBody, ResponseBody
from ninfer_runtime.server.responses.objects import ResponseObjects
from ninfer_runtime.server.responses.output import Output
from ninfer_runtime.server.responses.planning import EFFORT, Plan, plan_response
from ninfer_runtime.server.responses.store import KeptResponse, ResponseStore
from ninfer_runtime.server.sse import EventStream, until_gone, write_event

router = APIRouter()


def find_store(request: Request) -> ResponseStore:
    return request.app.state.responses


@router.post("/v1/responses", **describe(ResponseBody, "Answer a list of items", stream=True))
async def create_response(request: Request) -> Response:
    """Answer the input, whole or as a stream of events."""
    body = ResponseBody.read(await read_json(request))
    context, record = find_context(request), find_record(request)
    context.check_model(body.model)
    record.stream, record.model = bool(body.stream), context.service.card.id
    run = _Run(body, plan_response(body, find_store(request)), request)
    if not body.stream:
        return JSONResponse(await until_gone(request.receive, run.collect()))
    answer = await until_gone(request.receive, run.begin())
    events = guard_events(run.stream(answer), record, run.write_failure)
    return EventStream(events, context.options.keep_alive)


@router.post(
    "/v1/responses/input_tokens", **describe(InputTokensBody, "Count the tokens of an input")
)
async def count_input(request: Request) -> Response:
    """Count what the model would see of the input."""
    body = InputTokensBody.read(await read_json(request))
    find_context(request).check_model(body.model)
    plan = plan_response(body, find_store(request))
    with naming(plan.places):
        prepared = await prepare(request, replace(plan.wanted, counted=True), EFFORT)
    return JSONResponse({"object": "response.input_tokens", "input_tokens": len(prepared.ids)})


class _Run:
    """One response on its way: its objects, what has come of it, and the numbers of its events."""

    def __init__(self, body: ResponseBody, plan: Plan, request: Request) -> None:
        self._plan, self._request = plan, request
        self._record: RequestRecord = find_record(request)
        self._kept = body.store is not False
        self._objects = ResponseObjects(find_context(request).service.card.id, body)
        self._output = Output(plan.tools.origin, body.summarised, body.sealed)
        self._numbers = itertools.count()

    async def begin(self) -> Answer:
        """Return the answer as soon as it has a lane."""
        with naming(self._plan.places):
            return await begin(self._request, self._plan.wanted, EFFORT)

    async def collect(self) -> dict[str, Any]:
        """Return the whole response."""
        last: dict[str, Any] = {}
        async with aclosing(self._follow(await self.begin())) as events:
            async for event in events:
                last = event
        return last["response"]

    async def stream(self, answer: Answer) -> AsyncGenerator[bytes]:
        """Give the events of the response, all numbered."""
        async with aclosing(self._follow(answer)) as events:
            for kind in ("response.created", "response.in_progress"):
                yield self._write({"type": kind, "response": self._objects.begun()})
            async for event in events:
                yield self._write(event)

    def write_failure(self, error: ApiError) -> bytes:
        """Return the last event of a response that cannot be finished."""
        # What is open is not closed any more: the output is what was done before.
        response = self._objects.failed(self._output.items, error)
        self._keep(response)
        return self._write({"type": "response.failed", "response": response})

    async def _follow(self, answer: Answer) -> AsyncGenerator[dict[str, Any]]:
        async with aclosing(follow(answer, self._record)) as items:
            async for _, item in items:
                if not isinstance(item, Finished):
                    for event in self._output.add(item):
                        yield event
                    continue
                for event in self._output.finish(cut=item.reason == LENGTH):
                    yield event
                response = self._objects.ended(self._output.items, item)
                self._keep(response)
                yield {"type": f"response.{response['status']}", "response": response}

    def _write(self, event: dict[str, Any]) -> bytes:
        kind = event["type"]
        numbered = {"type": kind, "sequence_number": next(self._numbers), **event}
        return write_event(numbered, kind)

    def _keep(self, response: dict[str, Any]) -> None:
        if self._kept:
            kept = KeptResponse(response, self._plan.input)
            self._request.app.state.responses.keep(kept)
