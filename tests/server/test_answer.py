"""What routes read while the engine works (SV-7, SV-9, SV-20), without an engine."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from builders.live_services import collect
from ninfer_runtime.frontend.answer_parser import AnswerParser
from ninfer_runtime.frontend.tool_calls.tool_set import ToolSet
from ninfer_runtime.server.answer import Answer, AnswerState, Choice
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.engine_process.messages import Admitted, Ended, Reuse, Said
from ninfer_runtime.server.prepared import Prepared


def make(count: int = 1, **facts: Any) -> AnswerState:
    """Return an answer whose choices have the numbers 0, 1, ..."""
    fields = dict.fromkeys(Prepared.__dataclass_fields__) | {
        "ids": (1, 2, 3), "max_tokens": 9, "asked_tokens": 9,
    }  # fmt: skip
    prepared = Prepared(**(fields | facts))
    choices = tuple(Choice(n, n, AnswerParser(True, ToolSet({}))) for n in range(count))
    return AnswerState(prepared, choices, asyncio.get_running_loop().create_future())


def test_choices_come_as_they_are_said():
    """SV-9: each item with its choice; the cached tokens are those of the first to be admitted."""

    async def run() -> None:
        state = make(2)
        one, two = state.choices
        answer = Answer(state, lambda: None)
        state.admit(one, Admitted(0, 1, 0.5, Reuse("continuation", 2, 7)))
        state.admit(two, Admitted(1, 0, 0.6, Reuse("shared", 3)))
        assert await answer.admitted() == 2
        assert (answer.reuse, answer.differs_at, answer.prompt_tokens) == ("continuation", 7, 3)
        state.say(two, Said(1, "a</think>b", 3, 2))
        state.say(one, Said(0, "c", 1, 1))
        state.say(one, Said(0, "</think>\n\nd", 4, 2))
        for choice in (two, one):
            state.end(choice, Ended(choice.key, "stop", 5, 2))
        found = await collect(answer)
        assert [(w.reasoning, w.content) for w in found] == [("c", "d"), ("a", "b")]
        assert [w.finished.usage.cached for w in found] == [2, 3]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("ended", "facts", "words"),
    [
        (Ended(0, "length", 9, 9, open_reasoning=True), {}, ["cut inside the reasoning after 9"]),
        (Ended(0, "stop", 5, 5, open_reasoning=True), {}, ["without closing its reasoning"]),
        (Ended(0, "stop", 9, 5, closed_at=4), {}, ["closed after 4 tokens"]),
        (Ended(0, "length", 9, 5), {"asked_tokens": 50}, ["max_tokens was 50"]),
        (Ended(0, "length", 9, 5), {"asked_tokens": None}, []),
        (Ended(0, "stop", 9, 5), {"asked_tokens": 50}, []),
        (Ended(0, "cancelled", 9, 9, open_reasoning=True, closed_at=3), {}, []),
        (Ended(0, "error", 9, 5, error="e", closed_at=3), {}, []),
    ],
)
def test_an_answer_says_what_a_client_could_not_know(ended, facts, words):
    """SV-20."""

    async def run() -> None:
        state = make(**facts)
        finished = state.end(state.choices[0], ended)
        assert len(finished.warnings) == len(words)
        assert all(w in got for w, got in zip(words, finished.warnings, strict=True))

    asyncio.run(run())


def test_closing_or_dropping_an_answer_cancels_it_once():
    """SV-7."""

    async def run() -> None:
        calls: list[int] = []
        answer = Answer(make(), lambda: calls.append(1))
        await answer.aclose()
        answer.cancel()
        assert calls == [1]
        answer = Answer(make(), lambda: calls.append(2))
        del answer
        assert calls == [1, 2]

    asyncio.run(run())


def test_whoever_waits_hears_of_the_refusal_and_so_does_whoever_reads():
    """SV-6: nobody waits for ever; a second refusal changes nothing."""

    async def run() -> None:
        state = make()
        answer = Answer(state, lambda: None)
        waiting = asyncio.create_task(answer.admitted())
        await asyncio.sleep(0)
        state.fail(ApiError(503, "late", "request_queue_timeout"))
        state.fail(ApiError(500, "other"))
        for attempt in (waiting, answer.admitted(), collect(answer)):
            with pytest.raises(ApiError, match="late"):
                await attempt

    asyncio.run(run())


def test_a_call_cut_by_the_limit_is_no_reason_to_act():
    """SV-14: only a complete call makes the reason `tool_calls`."""
    call = "</think><tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n"

    async def run(text: str, reason: str) -> str:
        state = make()
        tools = ToolSet({"f": AnyTool})
        choice = replace(state.choices[0], parser=AnswerParser(True, tools))
        state.say(choice, Said(0, text, 9, 1))
        return state.end(choice, Ended(0, reason, 9, 1)).reason

    from ninfer_runtime.frontend.tool_calls.tool_set import Tool

    AnyTool = Tool("f", {"a": None}, None)
    assert asyncio.run(run(call + "</tool_call>", "stop")) == "tool_calls"
    assert asyncio.run(run(call[:50], "length")) == "length"
