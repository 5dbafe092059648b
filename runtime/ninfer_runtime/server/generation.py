"""From a request in the words of no dialect to an answer that has a lane."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Set
from contextlib import aclosing
from typing import Any

from starlette.requests import Request

from ninfer_runtime.server.api_error import ApiError, invalid
from ninfer_runtime.server.backend import Answer, Prepared
from ninfer_runtime.server.context import ServerContext, find_context, find_record
from ninfer_runtime.server.errors import error_body, internal_error, speaks_anthropic
from ninfer_runtime.server.events import CANCELLED, ERROR, Delta, Finished
from ninfer_runtime.server.readiness import STOPPING, explain_state
from ninfer_runtime.server.request_record import RequestRecord
from ninfer_runtime.server.requests import AnswerFields, ChatRequest, TextRequest
from ninfer_runtime.server.sse import write_event
from ninfer_runtime.server.thinking import fit_effort

_log = logging.getLogger(__name__)
_FAMILY = ("preserve_thinking", "add_vision_id")


async def prepare(
    request: Request, wanted: ChatRequest | TextRequest, effort: str = "reasoning_effort"
) -> Prepared:
    """Return the prepared request; ApiError 400 for what the model or the server cannot do.

    `effort` is what this API calls the effort of reasoning.
    """
    context = find_context(request)
    _check_answer(wanted.answer, context)
    if isinstance(wanted, TextRequest):
        return await context.service.prepare_text(wanted)
    card = context.service.card
    level = fit_effort(wanted.thinking.effort, card.efforts, effort)
    if wanted.thinking.effort is not None and level is None:
        _note(request, f"{effort}: the model's template knows one level of thinking, which is on.")
    _check_variables(request, wanted.template, card.template_names)
    thinking = dataclasses.replace(wanted.thinking, effort=level)
    messages = await context.media.resolve(wanted.messages, vision=card.vision)
    wanted = dataclasses.replace(wanted, thinking=thinking, messages=messages)
    return await context.service.prepare_chat(wanted)


async def begin(
    request: Request, wanted: ChatRequest | TextRequest, effort: str = "reasoning_effort"
) -> Answer:
    """Return the answer as soon as it has a lane, with the record filled in.

    ApiError 400 (`prepare`), 429 when too many wait already, 503 when the wait was too long.
    """
    prepared = await prepare(request, wanted, effort)
    answer = start(request, wanted, prepared)
    await wait_admitted(answer, find_record(request))
    return answer


def start(request: Request, wanted: ChatRequest | TextRequest, prepared: Prepared) -> Answer:
    """Return the answer that waits for a lane; ApiError 429 when too many wait already."""
    _note_request(find_record(request), wanted, prepared)
    return find_context(request).service.start(prepared)


async def wait_admitted(answer: Answer, record: RequestRecord) -> None:
    """Return when the answer has a lane; it is cancelled when that fails or is given up."""
    try:
        record.cached = (record.cached or 0) + await answer.admitted()
    except BaseException:
        answer.cancel()
        raise
    record.reuse, record.differs_at = answer.reuse, answer.differs_at


async def follow(
    answer: Answer, record: RequestRecord
) -> AsyncGenerator[tuple[int, Delta | Finished]]:
    """Give the items of an answer and keep in the record what they say.

    ApiError 500 for an answer that ends with an error, 503 for one the server ends. The answer is
    cancelled when nobody wants more of it.
    """
    try:
        async for index, item in answer:
            if isinstance(item, Finished):
                record.finished.append(item)
                if item.reason == CANCELLED:  # not by its reader, who would not be here any more
                    raise explain_state(STOPPING, None)
                if item.reason == ERROR:
                    message = item.error or "the engine failed while it generated this answer"
                    raise ApiError(500, message, "generation_failed")
                item = dataclasses.replace(item, warnings=(*record.notes, *item.warnings))
            else:
                record.note_first()
            yield index, item
    finally:
        answer.cancel()


async def guard_events(
    events: AsyncGenerator[bytes],
    record: RequestRecord,
    write: Callable[[ApiError], bytes] | None = None,
) -> AsyncGenerator[bytes]:
    """Give events; a failure becomes the API's error event and the end, without a [DONE]. `write`
    gives the last event where it is another one."""
    async with aclosing(events):
        try:
            async for event in events:
                yield event
            return
        except ApiError as error:
            failure = error
        except Exception:
            _log.exception("request %s failed while it was streamed", record.id)
            failure = internal_error()
        record.error = failure.code or "error"
        if write is not None:
            yield write(failure)
            return
        name = "error" if speaks_anthropic(record.path) else None
        yield write_event(error_body(failure, record.path, record.id), name)


def _check_variables(request: Request, stated: Mapping[str, Any], known: Set[str]) -> None:
    """Refuse what the template does not read. Switches of the family are only noted: clients send
    them to whatever model there is."""
    for name, value in stated.items():
        place = f"chat_template_kwargs.{name[:100]}"
        if name not in known and name not in _FAMILY:
            message = f"{place}: the model's template has no such variable"
            raise invalid(message, place, "unknown_parameter")
        if name not in known and value:
            _note(request, f"{place} has no effect: the model's template has no such variable.")


def _note(request: Request, sentence: str) -> None:
    find_record(request).notes.append(sentence)


def _check_answer(answer: AnswerFields, context: ServerContext) -> None:
    card = context.service.card
    if answer.choices > card.lanes:
        message = f"n is {answer.choices}, this server has {card.lanes} lanes (--max-concurrency)"
        raise invalid(message, "n", "n_not_supported")
    beyond = [id for id in answer.sampling.bias if id >= card.vocabulary]
    if beyond:
        message = f"logit_bias: no token has id {beyond[0]}, there are {card.vocabulary}"
        raise invalid(message, "logit_bias", "invalid_value")


def _note_request(
    record: RequestRecord, wanted: ChatRequest | TextRequest, prepared: Prepared
) -> None:
    record.choices = wanted.answer.choices
    record.max_tokens = prepared.max_tokens
    record.prompt = (record.prompt or 0) + len(prepared.ids)
    if isinstance(wanted, ChatRequest):
        thinking = prepared.thinking
        record.thinking, record.effort = thinking.enabled, thinking.effort
        record.budget = thinking.budget
