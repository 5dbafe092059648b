"""Requests through both processes on the demo model (SV-5 to SV-20)."""

from __future__ import annotations

import asyncio
import base64
import gc
import io
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from builders.live_services import GREEDY, LiveService, chat, collect
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.events import TOOL_CALLS
from ninfer_runtime.server.requests import (
    AnswerFields,
    Constraint,
    SamplingFields,
    TextRequest,
    ThinkingFields,
    ToolChoice,
)
from ninfer_runtime.server.service_options import ServiceOptions

OFF = ThinkingFields(False)
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        },
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def live(demo_file: Path) -> Iterator[LiveService]:
    """A service with two lanes, drafts, and room for one request that waits."""
    options = ServiceOptions(max_pending=2, pending_seconds=60, model_id="demo")
    live = LiveService(demo_file, options, speculator="mtp")
    live.wait_until("ready")
    yield live
    live.close()


def test_the_card_says_what_is_served(live):
    """SV-1."""
    card = live.service.card
    assert (card.id, card.lanes, card.max_context, card.vocabulary) == ("demo", 2, 512, 4096)
    assert card.vision and card.parameters > 10_000_000 and card.efforts == ()
    assert card.template_names == {"enable_thinking"}
    assert card.engine.kv_tokens == 1024 and card.engine.drafts == 3


def test_an_answer_comes_in_its_parts_with_its_counts(live):
    """SV-14: usage is that of the tokens, the parts are what the parser makes of the text."""
    (whole,) = live.run(live.ask(chat()))
    end, service = whole.finished, live.service
    assert whole.reasoning and whole.content and not whole.calls and whole.pieces > 3
    assert (end.reason, end.warnings, end.error) == ("stop", (), None)
    assert end.usage.completion > end.usage.reasoning > 5
    prepared = live.run(service.prepare_chat(chat()))
    assert end.usage.prompt == len(prepared.ids) == len(service.encode(prepared.text))
    assert prepared.text.endswith("<|im_start|>assistant\n<think>\n")
    assert end.timings.prefill > 0 and end.timings.decode > 0 and end.timings.queued < 5
    assert end.timings.drafted >= end.timings.accepted > 0


def test_a_call_of_a_tool_is_the_reason_of_the_end(live):
    """SV-14: the whole markup is a call; with the choice `none` no tool is offered."""
    request = chat("What is the weather in Paris?", tools=(WEATHER,), max_tokens=100)
    (whole,) = live.run(live.ask(request))
    assert whole.finished.reason == TOOL_CALLS and not whole.content
    assert whole.calls[0].name == "get_weather"
    assert set(json.loads("".join(call.arguments for call in whole.calls))) == {"city"}
    none = live.run(live.service.prepare_chat(replace(request, tool_choice=ToolChoice("none"))))
    assert none.ids == live.run(live.service.prepare_chat(replace(request, tools=()))).ids


@pytest.mark.parametrize(
    ("tokens", "thinking", "reason", "warning"),
    [
        (12, ThinkingFields(), "length", "cut inside the reasoning after 12 tokens"),
        (64, ThinkingFields(budget=4), None, "closed after 4 tokens"),
        (60, ThinkingFields(budget=300), "stop", None),
    ],
)
def test_an_answer_that_thinking_ate_says_so(live, tokens, thinking, reason, warning):
    """SV-16, SV-20."""
    (whole,) = live.run(live.ask(chat(max_tokens=tokens, thinking=thinking)))
    end = whole.finished
    assert reason in (None, end.reason)
    assert [w for w in end.warnings if warning and warning in w] == list(end.warnings)
    assert bool(end.warnings) == (warning is not None)
    if tokens == 12:
        assert end.usage.completion == end.usage.reasoning == 12 and not whole.content
    if thinking.budget == 4:
        assert "Considering the limited time" in whole.reasoning
        prepared = live.run(live.service.prepare_chat(chat(max_tokens=tokens, thinking=thinking)))
        assert prepared.thinking == ThinkingFields(True, None, 4)


def test_structured_output_thinks_first(live):
    """SV-17: with drafts; the content is what the schema says."""
    constraint = Constraint("json_schema", '{"enum": [{"a": 1}, {"a": 2}]}')
    for thinking in (ThinkingFields(), OFF):
        (whole,) = live.run(live.ask(chat(constraint=constraint, thinking=thinking)))
        assert json.loads(whole.content) in ({"a": 1}, {"a": 2})
        assert bool(whole.reasoning) == (thinking is not OFF)
    (ended,) = live.run(live.ask(chat(constraint=constraint, thinking=OFF, ignore_eos=True)))
    assert ended.finished.reason == "stop" and ended.content == whole.content


def test_choices_draw_with_seeds_one_after_the_other(live):
    """SV-10: the second choice is the answer to the next seed; the same seed gives the same."""
    sampling = SamplingFields(temperature=1.5, seed=11)
    fields = {"max_tokens": 10, "thinking": OFF, "ignore_eos": True}
    both = live.run(live.ask(chat(choices=2, sampling=sampling, **fields)))
    (later,) = live.run(live.ask(chat(sampling=replace(sampling, seed=12), **fields)))
    assert both[1].content == later.content and both[0].content != both[1].content
    (first,) = live.run(live.ask(chat(sampling=sampling, **fields)))
    assert first.content == both[0].content


def test_scores_are_those_of_the_content(live):
    """SV-19: likely tokens beside each, best first, and nothing of a stop string."""
    (whole,) = live.run(live.ask(chat("Say something", logprobs=3, thinking=OFF, max_tokens=12)))
    assert b"".join(score.data for score in whole.scores).decode() == whole.content
    for score in whole.scores:
        assert len(score.top) == 3 and score.logprob <= 0
        assert score.top[0] == (score.data, score.logprob), "greedy draws the most likely"
        assert [v for _, v in score.top] == sorted((v for _, v in score.top), reverse=True)


def test_a_text_goes_on_as_it_is(live):
    """SV-14: of strings and ids; marks in it mean nothing."""
    fields = AnswerFields(max_tokens=6, sampling=GREEDY, ignore_eos=True)
    (text,) = live.run(live.ask(TextRequest("The sky is", fields)))
    ids = tuple(live.service.encode("The sky is"))
    (same,) = live.run(live.ask(TextRequest(ids, fields)))
    assert text.content == same.content and not text.reasoning
    assert text.finished.usage.completion == 6 and text.finished.reason == "length"
    forced = Constraint("regex", "<think>a</think>b")
    (raw,) = live.run(live.ask(TextRequest("x", replace(fields, constraint=forced, max_tokens=40))))
    assert raw.content == "<think>a</think>b"


def test_a_stop_string_counts_to_its_token(live):
    """SV-15."""
    fields = {"thinking": OFF, "max_tokens": 12, "ignore_eos": True}
    (free,) = live.run(live.ask(chat("Say something", **fields)))
    assert len(free.content) > 8
    stop = free.content[4:7]
    cut = chat("Say something", stop=(stop,), **fields)
    (whole,) = live.run(live.ask(cut))
    assert whole.content == free.content[: free.content.index(stop)]
    assert (whole.finished.reason, whole.finished.stop) == ("stop", stop)
    assert whole.finished.usage.completion <= free.finished.usage.completion


def test_an_image_is_seen(live):
    """SV-13: twice, the second time without crossing the pipe again."""
    pixels = np.random.default_rng(0).integers(0, 255, (48, 80, 3), np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    url = "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What?"}]
    request = replace(
        chat(max_tokens=5, ignore_eos=True), messages=({"role": "user", "content": parts},)
    )
    prepared = live.run(live.service.prepare_chat(request))
    (place,) = prepared.media.items
    assert place.end - place.begin == len(prepared.media.places) == 4
    assert set(prepared.ids[place.begin : place.end]) == {4044}
    sent = []
    process = live.service._process
    send, process.send = process.send, lambda message: sent.append(message) or send(message)
    answers = [live.run(live.ask(request))[0] for _ in range(2)]
    process.send = send
    assert answers[0].reasoning == answers[1].reasoning
    assert answers[0].finished.usage.prompt == len(prepared.ids)
    assert sum(type(message).__name__ == "Patches" for message in sent) == 1


def test_too_many_requests_are_told_to_come_again(live):
    """SV-5: lanes and waiting ones are counted, each choice for itself."""

    async def crowd() -> None:
        request = chat(max_tokens=400, ignore_eos=True, thinking=OFF)
        answers = [await live.start(request) for _ in range(3)]
        with pytest.raises(ApiError, match="busy") as caught:
            await live.start(replace(request, answer=replace(request.answer, choices=2)))
        assert (caught.value.status, caught.value.code) == (429, "server_overloaded")
        answers.append(await live.start(request))
        with pytest.raises(ApiError):
            await live.start(request)
        await answers[1].admitted()
        slots = live.service.slots()
        assert [slot["is_processing"] for slot in slots] == [True, True]
        assert live.service.counters()["waiting"] == 2
        for answer in answers:
            answer.cancel()
        ends = [(await collect(answer))[0].finished for answer in answers[:2]]
        assert [end.reason for end in ends] == ["cancelled"] * 2
        with pytest.raises(ApiError, match="cancelled"):
            await answers[3].admitted()
        await settle(live)

    live.run(crowd())


async def settle(live: LiveService) -> None:
    """Wait until nothing is present any more, and nothing is held."""
    while live.service.counters()["running"] or live.service._present:
        await asyncio.sleep(0.01)
    counters = live.service.counters()
    assert counters["kv_pages_used"] == counters["waiting"] == 0


def test_an_answer_that_is_dropped_is_cancelled(live):
    """SV-7: whoever forgets it."""

    async def drop() -> None:
        answer = await live.start(chat(max_tokens=450, ignore_eos=True, thinking=OFF))
        await answer.admitted()
        async for _ in answer:
            break
        del answer
        gc.collect()
        began = time.monotonic()
        await settle(live)
        assert time.monotonic() - began < 3

    live.run(drop())


def test_a_reader_that_stopped_holds_up_nobody(live):
    """SV-9: and finds everything when it comes back."""

    async def stall() -> None:
        slow = await live.start(chat(max_tokens=30, ignore_eos=True, thinking=OFF))
        await slow.admitted()
        await live.ask(chat(max_tokens=10))
        await asyncio.sleep(0)
        assert (await collect(slow))[0].finished.usage.completion == 30

    live.run(stall())


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"max_tokens": 0}, "max_tokens", None),
        ({"stop": ("a", "")}, "stop", "invalid_value"),
        ({"stop": tuple("abcde")}, "stop", "invalid_value"),
        ({"logprobs": 65}, "top_logprobs", "invalid_value"),
        ({"choices": 3}, "n", "n_not_supported"),
        ({"sampling": SamplingFields(top_p=1.5)}, "top_p", "invalid_value"),
        ({"sampling": SamplingFields(temperature=float("nan"))}, "temperature", "invalid_value"),
        ({"constraint": Constraint("regex", "(")}, "guided_regex", "invalid_grammar"),
        ({"constraint": Constraint("json_schema", "7")}, "response_format", "invalid_grammar"),
        ({"thinking": ThinkingFields(budget=-2)}, "thinking_budget", None),
        ({"text": "word " * 600}, "messages", "context_length_exceeded"),
        ({"tools": ({"type": "function"},)}, "tools[0]", "invalid_value"),
        ({"tool_choice": ToolChoice("named", ("f",))}, "tool_choice", "invalid_value"),
    ],
)
def test_what_cannot_be_is_refused_before_it_waits(live, change, param, code):
    """SV-11, SV-18: with the field that is at fault."""
    with pytest.raises(ApiError) as caught:
        live.run(live.service.prepare_chat(chat(**change)))
    error = caught.value
    assert (error.status, error.param, error.code) == (400, param, code)
    assert "\n" not in error.message and len(error.message) < 500


def test_a_prompt_that_is_too_long_names_both_numbers(live):
    """SV-11: one token less has room for one."""
    prompt = TextRequest(tuple([10] * 512), AnswerFields(max_tokens=5, sampling=GREEDY))
    with pytest.raises(ApiError, match=r"512 tokens.*512"):
        live.run(live.service.prepare_text(prompt))
    (whole,) = live.run(live.ask(replace(prompt, prompt=prompt.prompt[:-1])))
    assert whole.finished.usage.completion == 1
    if whole.finished.reason == "length":
        assert "room for 1" in whole.finished.warnings[0]


def test_a_request_waits_for_a_lane_as_long_as_it_may(demo_file):
    """SV-6."""
    options = ServiceOptions(pending_seconds=0.3)
    live = LiveService(demo_file, options, lanes=1, kv_capacity=512)
    live.wait_until("ready")

    async def wait() -> None:
        running = await live.start(chat(max_tokens=450, ignore_eos=True, thinking=OFF))
        await running.admitted()
        late = await live.start(chat())
        began = time.monotonic()
        with pytest.raises(ApiError, match="no lane was free") as caught:
            await late.admitted()
        assert 0.1 < time.monotonic() - began < 2
        assert (caught.value.status, caught.value.code) == (503, "request_queue_timeout")
        await asyncio.sleep(0.2)
        assert len(live.service._present) == 1, "it still waits"
        running.cancel()
        (whole,) = await live.ask(chat(max_tokens=3))
        assert whole.finished.usage.completion == 3

    live.run(wait())
    live.close()


@pytest.mark.parametrize("thinking", [ThinkingFields(), OFF])
def test_a_call_that_is_asked_for_is_made(live, thinking):
    """SV-17: of the function that is named, whatever the question was."""
    other = {"type": "function", "function": {"name": "stop_time", "parameters": {
        "type": "object", "properties": {"unit": {"enum": ["ms", "s"]}}, "required": ["unit"],
    }}}  # fmt: skip
    request = chat(
        tools=(WEATHER, other), tool_choice=ToolChoice("named", ("stop_time",)),
        max_tokens=90, thinking=thinking,
    )  # fmt: skip
    (whole,) = live.run(live.ask(request))
    assert whole.finished.reason == TOOL_CALLS and not whole.content
    assert bool(whole.reasoning) == (thinking is not OFF)
    assert [call.name for call in whole.calls if call.name] == ["stop_time"]
    assert json.loads("".join(c.arguments for c in whole.calls))["unit"] in ("ms", "s")


def test_a_form_of_the_answer_leaves_room_for_calls(live):
    """SV-17: of the offered tools; a call that is asked for leaves none for the form."""
    constraint = Constraint("json_schema", '{"enum": [{"a": 1}]}')
    fields = {"tools": (WEATHER,), "constraint": constraint, "max_tokens": 100}
    (call,) = live.run(live.ask(chat("What is the weather in Paris?", **fields)))
    assert call.finished.reason == TOOL_CALLS and call.calls[0].name == "get_weather"
    (told,) = live.run(live.ask(chat("What is 2+2?", thinking=OFF, **fields)))
    assert told.calls or json.loads(told.content) == {"a": 1}
    with pytest.raises(ApiError, match="form of the answer") as caught:
        live.run(live.ask(chat(tool_choice=ToolChoice("required"), **fields)))
    assert caught.value.param == "tool_choice"


def test_a_natural_end_inside_the_reasoning_says_so(live):
    """SV-20: an answer that is empty is never without a word."""
    end = live.service.tokenizer.stops[0]
    sampling = replace(GREEDY, bias={end: 100.0})
    (whole,) = live.run(live.ask(chat(sampling=sampling)))
    assert (whole.content, whole.finished.reason) == ("", "stop")
    assert whole.finished.usage.completion == whole.finished.usage.reasoning == 1
    assert ["without closing its reasoning" in w for w in whole.finished.warnings] == [True]
    (closed,) = live.run(live.ask(chat(sampling=sampling, thinking=OFF)))
    assert not closed.finished.warnings


def test_a_prompt_that_began_before_is_not_computed_again(demo_file):
    """SV-12: the next turn, and a second answer to the same prompt."""
    live = LiveService(demo_file, prefix_reuse=True, max_context=1024, kv_capacity=2048)
    live.wait_until("ready")
    first = chat("word " * 100, thinking=OFF, max_tokens=8)
    (cold,) = live.run(live.ask(first))
    assert cold.finished.usage.cached == 0
    (warm,) = live.run(live.ask(first))
    assert warm.content == cold.content
    assert warm.finished.usage.cached >= cold.finished.usage.prompt - 12
    messages = (
        *first.messages, {"role": "assistant", "content": cold.content},
        {"role": "user", "content": "And then?"},
    )  # fmt: skip

    async def follow() -> None:
        answer = await live.start(replace(first, messages=messages))
        cached = await answer.admitted()
        assert cached > 100 and answer.reuse != "none"
        (whole,) = await collect(answer)
        assert whole.finished.usage.cached == cached

    live.run(follow())
    live.close()
