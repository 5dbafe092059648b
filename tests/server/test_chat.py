"""Whole answers and streams of POST /v1/chat/completions (HT-10, HT-11)."""

from __future__ import annotations

import json

import httpx
import pytest

from builders.fake_service import FakeCard, FakeService, end, say
from builders.scripted_calls import TWO_CALLS
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.events import LENGTH, Delta, ScoredToken, Timings

HI = {"messages": [{"role": "user", "content": "hi"}]}
PATH = "/v1/chat/completions"


def read_events(text: str) -> list[dict]:
    """Return the chunks of a stream that ends with [DONE]."""
    events = [line for line in text.split("\n\n") if line]
    assert events[-1] == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]


def test_whole_answer_has_usage_and_timings(http: httpx.Client):
    answer = http.post(PATH, json=HI).json()
    assert answer["id"].startswith("chatcmpl-")
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "demo"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert answer["usage"] == {
        "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }  # fmt: skip
    # 3 tokens have 2 intervals, in 0.1 s; 5 of 7 prompt tokens were computed, in 0.5 s.
    assert answer["timings"] == {
        "cache_n": 2, "prompt_n": 5, "prompt_ms": 500.0, "prompt_per_token_ms": 100.0,
        "prompt_per_second": 10.0, "predicted_n": 3, "predicted_ms": 100.0,
        "predicted_per_token_ms": 50.0, "predicted_per_second": 20.0,
        "draft_n": 4, "draft_n_accepted": 3,
    }  # fmt: skip
    assert "warnings" not in answer


def test_timings_of_nothing_are_zero(http: httpx.Client, fake: FakeService):
    fake.script = [(0, end(completion=1, cached=7, timings=Timings()))]
    timings = http.post(PATH, json=HI).json()["timings"]
    assert timings["predicted_per_second"] == timings["prompt_per_second"] == 0
    assert timings["predicted_per_token_ms"] == timings["prompt_per_token_ms"] == 0


def test_calls_and_reasoning_are_apart_from_content(http: httpx.Client, fake: FakeService):
    fake.script = TWO_CALLS
    choice = http.post(PATH, json=HI).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {
        "role": "assistant", "content": "I'll look.", "refusal": None,
        "reasoning_content": "Let me see.",
        "tool_calls": [
            {"id": "call_1", "type": "function",
             "function": {"name": "f", "arguments": '{"a":1}'}},
            {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }  # fmt: skip


def test_content_without_text_is_null_only_beside_calls(http: httpx.Client, fake: FakeService):
    fake.script = TWO_CALLS[3:]
    assert http.post(PATH, json=HI).json()["choices"][0]["message"]["content"] is None
    fake.script = [(0, Delta(reasoning="hm")), (0, end(LENGTH))]
    assert http.post(PATH, json=HI).json()["choices"][0]["message"]["content"] == ""


def test_stream_begins_with_the_role_and_ends_with_reason_and_timings(http: httpx.Client):
    answer = http.post(PATH, json={**HI, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    chunks = read_events(answer.text)
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    first = {"role": "assistant", "content": ""}
    assert deltas == [first, {"content": "Hel"}, {"content": "lo"}, {}]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None, None, None, "stop"]
    assert [("timings" in chunk) for chunk in chunks] == [False, False, False, True]
    assert not any("usage" in chunk for chunk in chunks)


def test_usage_chunk_is_last_and_all_others_say_null(http: httpx.Client):
    body = {**HI, "stream": True, "stream_options": {"include_usage": True}}
    *others, last = read_events(http.post(PATH, json=body).text)
    assert all(chunk["usage"] is None for chunk in others)
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 10
    assert last["timings"]["predicted_n"] == 3
    assert not any("timings" in chunk for chunk in others)


def test_case_31_streamed_calls_join_to_the_whole_ones(http: httpx.Client, fake: FakeService):
    """Case 31: the name first, then fragments that join to the arguments."""
    fake.script = TWO_CALLS
    whole = http.post(PATH, json=HI).json()["choices"][0]["message"]
    pieces = [
        piece
        for chunk in read_events(http.post(PATH, json={**HI, "stream": True}).text)
        for choice in chunk["choices"]
        for piece in choice["delta"].get("tool_calls", [])
    ]
    first = {"name": "f", "arguments": ""}
    assert pieces[0] == {"index": 0, "id": "call_1", "type": "function", "function": first}
    assert pieces[1] == {"index": 0, "function": {"arguments": '{"a":'}}
    for index, call in enumerate(whole["tool_calls"]):
        mine = [piece for piece in pieces if piece["index"] == index]
        joined = "".join(piece["function"]["arguments"] for piece in mine)
        assert joined == call["function"]["arguments"]


def test_warnings_stand_in_the_answer_and_on_the_last_chunk(http: httpx.Client, fake: FakeService):
    fake.script = [(0, end(LENGTH, warnings=("cut inside the reasoning",)))]
    answer = http.post(PATH, json=HI).json()
    assert answer["warnings"] == ["cut inside the reasoning"]
    assert answer["choices"][0]["finish_reason"] == "length"
    chunks = read_events(http.post(PATH, json={**HI, "stream": True}).text)
    assert chunks[-1]["warnings"] == ["cut inside the reasoning"]


def test_what_the_template_does_not_tell_apart_is_said(http: httpx.Client, fake: FakeService):
    fake.card = FakeCard(efforts=(), template_names=frozenset())
    kwargs = {"preserve_thinking": True, "add_vision_id": False}
    body = {**HI, "reasoning_effort": "high", "chat_template_kwargs": kwargs}
    warnings = http.post(PATH, json=body).json()["warnings"]
    assert [warning.partition(":")[0] for warning in warnings] == [
        "reasoning_effort",
        "chat_template_kwargs.preserve_thinking has no effect",
    ]
    assert fake.seen[0].thinking.enabled is True
    assert "warnings" not in http.post(PATH, json={**HI, "reasoning_effort": "none"}).json()


def test_logprobs_have_bytes_and_finite_numbers(http: httpx.Client, fake: FakeService):
    top = ((b"\xf0\x9f", -0.5), (b"b", float("-inf")))
    fake.script = [
        (0, Delta(content="a", scores=(ScoredToken(b"\xf0\x9f", -0.5, top),))),
        (0, end()),
    ]
    expected = {
        "token": "�", "logprob": -0.5, "bytes": [0xF0, 0x9F],
        "top_logprobs": [
            {"token": "�", "logprob": -0.5, "bytes": [0xF0, 0x9F]},
            {"token": "b", "logprob": -9999.0, "bytes": [0x62]},
        ],
    }  # fmt: skip
    body = {**HI, "logprobs": True, "top_logprobs": 2}
    whole = http.post(PATH, json=body).json()["choices"][0]["logprobs"]
    assert whole == {"content": [expected], "refusal": None}
    chunks = read_events(http.post(PATH, json={**body, "stream": True}).text)
    assert chunks[1]["choices"][0]["logprobs"] == whole


def test_choices_are_told_apart_and_added_up(http: httpx.Client, fake: FakeService):
    script = [(1, Delta(content="b")), (0, Delta(content="a"))]
    fake.script = [*script, (1, end(LENGTH, completion=9)), (0, end())]
    answer = http.post(PATH, json={**HI, "n": 2}).json()
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    reasons = [choice["finish_reason"] for choice in answer["choices"]]
    assert (texts, reasons) == (["a", "b"], ["stop", "length"])
    assert answer["usage"]["prompt_tokens"] == 7
    assert answer["usage"]["completion_tokens"] == 12
    # 2 + 8 intervals side by side in 0.1 s.
    assert answer["timings"]["predicted_per_second"] == 100
    chunks = read_events(http.post(PATH, json={**HI, "n": 2, "stream": True}).text)
    assert [chunk["choices"][0]["index"] for chunk in chunks] == [0, 1, 1, 0, 1, 0]


@pytest.mark.parametrize("stream", [False, True])
def test_refusals_before_the_first_token_are_statuses(http: httpx.Client, fake, stream):
    """HT-9: a queued client gets an honest answer, streaming or not."""
    fake.admission = [0.01, ApiError(503, "waited", "request_queue_timeout", retry_after=5)]
    answer = http.post(PATH, json={**HI, "stream": stream})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["error"]["code"] == "request_queue_timeout"
    assert fake.open == 0
    fake.refusal = ApiError(429, "full", "server_overloaded", retry_after=1)
    answer = http.post(PATH, json={**HI, "stream": stream})
    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        ((0, end("error", error="the engine broke")), "generation_failed"),
        (ApiError(503, "gone", "service_unavailable"), "service_unavailable"),
        (RuntimeError("a secret"), "internal_error"),
        ((0, end("cancelled")), "service_unavailable"),
    ],
)
def test_case_40_failure_in_the_middle_is_an_error_event_and_no_done(http, fake, failure, code):
    """HT-11, case 40."""
    fake.script = [*say("Hel")[:1], failure]
    text = http.post(PATH, json={**HI, "stream": True}).text
    *_, last = [event for event in text.split("\n\n") if event]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == code
    assert "[DONE]" not in text
    assert "secret" not in text
    answer = http.post(PATH, json=HI)
    assert answer.status_code >= 500
    assert answer.json()["error"]["code"] == code
    assert fake.open == 0


def test_unknown_model_is_404(http: httpx.Client):
    """HT-8"""
    answer = http.post(PATH, json={**HI, "model": "gpt-x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert http.post(PATH, json={**HI, "model": None}).is_success
    assert http.post(PATH, json={**HI, "model": "demo"}).is_success


def test_a_base_address_written_twice_is_understood(http: httpx.Client):
    assert http.post("/v1/v1/chat/completions", json=HI).is_success
