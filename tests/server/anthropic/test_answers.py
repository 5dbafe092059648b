"""Whole messages and their events (HT-38, HT-39, HT-6, HT-10, HT-11)."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from builders.fake_service import FakeService, end, say
from builders.scripted_calls import TWO_CALLS
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.app import create_app
from ninfer_runtime.server.events import LENGTH, STOP, CallDelta, Delta
from ninfer_runtime.server.http_options import HttpOptions
from ninfer_runtime.server.sealed_text import unseal

PATH = "/v1/messages"
BODY = {"model": "claude-x", "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]}


def ask(http, **fields):
    answer = http.post(PATH, json={**BODY, **fields})
    assert answer.status_code == 200, answer.text
    return answer


def read_events(text: str) -> list[dict]:
    """Return the events of a stream, all of them named."""
    events = []
    for block in text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def join_events(events: list[dict]) -> dict:
    """Return the message that the events make, as a client joins them."""
    message, texts = {}, {}
    for event in events:
        if event["type"] == "message_start":
            message = event["message"]
        elif event["type"] == "content_block_start":
            assert event["index"] == len(message["content"])
            message["content"].append(event["content_block"])
        elif event["type"] == "content_block_delta":
            delta = dict(event["delta"])
            delta.pop("type")
            ((name, text),) = delta.items()
            assert event["index"] == len(message["content"]) - 1
            texts.setdefault((event["index"], name), []).append(text)
        elif event["type"] == "message_delta":
            message |= event["delta"]
            message["usage"] |= event["usage"]
    for (index, name), pieces in texts.items():
        if name == "partial_json":
            message["content"][index]["input"] = json.loads("".join(pieces))
        else:
            message["content"][index][name] = "".join(pieces)
    return message


def test_whole_answer(http):
    answer = ask(http).json()
    assert answer["id"].startswith("msg_")
    answer.pop("id")
    assert answer.pop("timings")["predicted_n"] == 3
    assert answer == {
        "type": "message", "role": "assistant", "model": "claude-x",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn", "stop_sequence": None,
        "usage": {
            "input_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 2,
            "output_tokens": 3, "output_tokens_details": {"thinking_tokens": 1},
        },
    }  # fmt: skip


def test_thinking_text_and_calls_are_blocks_in_their_order(http, fake: FakeService):
    fake.script = TWO_CALLS
    answer = ask(http).json()
    assert answer["content"] == [
        {"type": "thinking", "thinking": "Let me see.", "signature": "ninfer"},
        {"type": "text", "text": "I'll look."},
        {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "call_2", "name": "g", "input": {}},
    ]
    assert answer["stop_reason"] == "tool_use"


def test_streamed_equals_whole(http, fake: FakeService):
    for script in (
        TWO_CALLS,
        say("Hel", "lo"),
        TWO_CALLS[3:],
        [(0, end())],
        [*TWO_CALLS[:1], (0, end())],
    ):
        fake.script = script
        whole = ask(http).json()
        whole.pop("timings")
        joined = join_events(read_events(ask(http, stream=True).text))
        assert {**joined, "id": whole["id"]} == whole


def test_events_come_in_the_order_clients_expect(http, fake: FakeService):
    fake.script = TWO_CALLS
    events = read_events(ask(http, stream=True).text)
    kinds = [event.get("delta", {}).get("type") or event["type"] for event in events[:-2]]
    start, stop = "content_block_start", "content_block_stop"
    assert kinds == [
        "message_start", "ping",
        start, "thinking_delta", "thinking_delta", "signature_delta", stop,
        start, "text_delta", stop,
        start, "input_json_delta", "input_json_delta", stop, start, "input_json_delta", stop,
    ]  # fmt: skip
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    begun = events[0]["message"]
    assert (begun["content"], begun["stop_reason"]) == ([], None)
    assert (begun["usage"]["input_tokens"], begun["usage"]["cache_read_input_tokens"]) == (5, 2)


def test_thinking_may_be_omitted(http, fake: FakeService):
    fake.script = TWO_CALLS
    thinking = {"type": "adaptive", "display": "omitted"}
    block = ask(http, thinking=thinking).json()["content"][0]
    assert block["thinking"] == ""
    assert unseal(block["signature"]) == "Let me see."
    events = read_events(ask(http, thinking=thinking, stream=True).text)
    assert join_events(events)["content"][0] == block


def test_an_answer_of_nothing_has_one_empty_text(http, fake: FakeService):
    fake.script = [(0, end())]
    assert ask(http).json()["content"] == [{"type": "text", "text": ""}]


@pytest.mark.parametrize(
    ("done", "reason", "text"),
    [
        (end(STOP), "end_turn", None),
        (end(STOP, stop="END"), "stop_sequence", "END"),
        (end(LENGTH, completion=64), "max_tokens", None),
        # 7 tokens of prompt in a context of 4096.
        (end(LENGTH, completion=4089), "max_tokens", None),
        (end(LENGTH, completion=4089), "model_context_window_exceeded", None),
    ],
)
def test_reasons_of_the_end(http, fake: FakeService, done, reason, text):
    fake.script = [(0, Delta(content="a")), (0, done)]
    most = 9000 if reason == "model_context_window_exceeded" else done.usage.completion
    for stream in (False, True):
        answer = ask(http, max_tokens=most, stream=stream)
        message = join_events(read_events(answer.text)) if stream else answer.json()
        assert (message["stop_reason"], message["stop_sequence"]) == (reason, text)


def test_case_37_small_limits_eaten_by_thinking_say_so(http, fake: FakeService):
    """Case 37."""
    fake.script = [
        (0, Delta(reasoning="hm")),
        (0, end(LENGTH, completion=16, reasoning=16, warnings=("cut inside the reasoning",))),
    ]
    answer = ask(http, max_tokens=16).json()
    assert [block["type"] for block in answer["content"]] == ["thinking"]
    assert answer["stop_reason"] == "max_tokens"
    assert answer["usage"]["output_tokens_details"]["thinking_tokens"] == 16
    assert answer["warnings"] == ["cut inside the reasoning"]


@pytest.mark.parametrize(
    ("arguments", "input"), [('{"a": 1, "b": "x', {"a": 1}), ('{"a', {}), ("", {})]
)
def test_a_call_that_was_cut_has_what_was_whole(http, fake: FakeService, arguments, input):
    piece = CallDelta(0, "call_1", "f", arguments)
    fake.script = [(0, Delta(calls=(piece,))), (0, end(LENGTH))]
    answer = ask(http).json()
    assert (answer["content"][0]["input"], answer["stop_reason"]) == (input, "max_tokens")


def test_silence_is_filled_with_pings(fake: FakeService):
    fake.script = [0.15, *say("a")]
    with TestClient(create_app(fake, HttpOptions(keep_alive=0.03))) as http:
        events = read_events(ask(http, stream=True).text)
    assert sum(event["type"] == "ping" for event in events) > 2


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (ApiError(429, "full", "server_overloaded", retry_after=1), 529, "overloaded_error"),
        (ApiError(503, "slow", "request_queue_timeout"), 504, "timeout_error"),
        (ApiError(400, "long", "context_length_exceeded"), 400, "invalid_request_error"),
        (ValueError("secret"), 500, "api_error"),
    ],
)
def test_refusals_have_the_shape_and_status_of_the_api(fake: FakeService, error, status, kind):
    fake.refusal = error
    with TestClient(create_app(fake), raise_server_exceptions=False) as http:
        for stream in (False, True):
            answer = http.post(PATH, json={**BODY, "stream": stream})
            body = answer.json()
            assert (answer.status_code, body["error"]["type"]) == (status, kind)
            assert body["request_id"] == answer.headers["request-id"]
            assert "secret" not in answer.text


def test_a_failure_in_a_stream_is_its_last_event(http, fake: FakeService):
    fake.script = [*say("a")[:1], ApiError(500, "broke", "engine_failed")]
    *_, last = read_events(ask(http, stream=True).text)
    assert last["error"] == {"type": "api_error", "message": "broke"}
    assert fake.open == 0


def test_tokens_are_counted_and_nothing_is_answered(http, fake: FakeService):
    body = {name: value for name, value in BODY.items() if name != "max_tokens"}
    answer = http.post(f"{PATH}/count_tokens", json=body)
    assert answer.json() == {"input_tokens": 7}
    assert (fake.open, fake.seen[0].counted) == (0, True)
