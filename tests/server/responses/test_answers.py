"""Whole responses and their events (HT-32, HT-11)."""

from __future__ import annotations

import json

import pytest

from builders.fake_service import FakeService, end, say
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.events import LENGTH, TOOL_CALLS, CallDelta, Delta, ScoredToken
from ninfer_runtime.server.sealed_text import unseal

PATH = "/v1/responses"
F = {"type": "function", "name": "f"}
CALLS = [
    (0, Delta(reasoning="Let me ")),
    (0, Delta(reasoning="see.")),
    (0, Delta(content="I'll ")),
    (0, Delta(content="look.")),
    (0, Delta(calls=(CallDelta(0, "call_1", "f"),))),
    (0, Delta(calls=(CallDelta(0, arguments='{"a":'),))),
    (0, Delta(calls=(CallDelta(0, arguments="1}"), CallDelta(1, "call_2", "crm.f", "{}")))),
    (0, Delta(content="Both.")),
    (0, end(TOOL_CALLS)),
]
TOOLS = [F, {"type": "namespace", "name": "crm", "tools": [F]}]


def read_events(text: str) -> list[dict]:
    """Return the events of a stream, all of them named and numbered."""
    events = []
    for block in text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def ask(http, **fields):
    answer = http.post(PATH, json={"input": "hi", **fields})
    assert answer.status_code == 200, answer.text
    return answer


def strip(value):
    """Return a response without what no two have in common."""
    if isinstance(value, dict):
        return {
            name: strip(item)
            for name, item in value.items()
            if name not in ("id", "created_at", "completed_at")
        }
    return [strip(item) for item in value] if isinstance(value, list) else value


def test_whole_answer(http):
    answer = ask(http, metadata={"a": "b"}, instructions="x", temperature=0.5).json()
    assert answer["id"].startswith("resp_")
    assert (answer["object"], answer["model"]) == ("response", "demo")
    assert answer["status"] == "completed"
    (message,) = answer["output"]
    assert message["id"].startswith("msg_")
    assert strip(message) == {
        "type": "message", "role": "assistant", "status": "completed",
        "content": [
            {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []},
        ],
    }  # fmt: skip
    assert answer["usage"] == {
        "input_tokens": 7, "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 1}, "total_tokens": 10,
    }  # fmt: skip
    assert (answer["metadata"], answer["instructions"]) == ({"a": "b"}, "x")
    assert (answer["temperature"], answer["store"]) == (0.5, True)
    assert answer["incomplete_details"] is answer["error"] is None
    assert answer["timings"]["predicted_n"] == 3


def test_reasoning_text_and_calls_are_items_in_their_order(http, fake: FakeService):
    fake.script = CALLS
    output = strip(ask(http, tools=TOOLS).json()["output"])
    assert [item["type"] for item in output] == [
        "reasoning", "message", "function_call", "function_call", "message",
    ]  # fmt: skip
    thought, _, first, second, last = output
    assert thought["content"] == [{"type": "reasoning_text", "text": "Let me see."}]
    assert (thought["summary"], thought["encrypted_content"]) == ([], None)
    assert first == {
        "type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a":1}',
        "status": "completed",
    }  # fmt: skip
    assert (second["namespace"], second["name"], second["arguments"]) == ("crm", "f", "{}")
    assert last["content"][0]["text"] == "Both."


def test_what_the_last_event_holds_is_the_whole_answer(http, fake: FakeService):
    for script in (CALLS, say("Hel", "lo"), [(0, end())], [*CALLS[:6], (0, end(LENGTH))]):
        fake.script = script
        fields = {"tools": TOOLS, "reasoning": {"summary": "auto"}, "top_logprobs": 1}
        whole = ask(http, **fields).json()
        last = read_events(ask(http, **fields, stream=True).text)[-1]
        assert last["type"] == f"response.{whole['status']}"
        assert strip(last["response"]) == strip(whole)


def test_events_tell_the_items_from_begin_to_end(http, fake: FakeService):
    fake.script = CALLS
    events = read_events(ask(http, stream=True, tools=TOOLS).text)
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.delta",
        "reasoning_text.done", "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"]
    added = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    assert [item["id"] for item in added] == [item["id"] for item in done]
    assert all(item["status"] == "in_progress" for item in added)
    assert not any(item.get("content") or item.get("arguments") for item in added)
    for event in events:
        if "item_id" in event:
            assert event["item_id"] == done[event["output_index"]]["id"]
    for kind, text in (("reasoning_text", "Let me see."), ("output_text", "I'll look.Both.")):
        deltas = [e["delta"] for e in events if e["type"] == f"response.{kind}.delta"]
        assert "".join(deltas) == text


def test_a_summary_is_the_reasoning_and_a_seal_holds_it(http, fake: FakeService):
    fake.script = CALLS[:3] + CALLS[-1:]
    fields = {"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]}
    events = read_events(ask(http, stream=True, **fields).text)
    deltas = [e["delta"] for e in events if e["type"] == "response.reasoning_summary_text.delta"]
    assert deltas == ["Let me ", "see."]
    item = events[-1]["response"]["output"][0]
    assert item["summary"] == [{"type": "summary_text", "text": "Let me see."}]
    assert unseal(item["encrypted_content"]) == "Let me see."


def test_case_37_an_answer_that_is_cut_says_so(http, fake: FakeService):
    """Case 37."""
    warning = "The answer was cut inside the reasoning."
    fake.script = [
        (0, Delta(reasoning="hm")),
        (0, end(LENGTH, completion=16, reasoning=16, warnings=(warning,))),
    ]
    answer = ask(http, max_output_tokens=16).json()
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in answer["output"]] == ["incomplete"]
    assert answer["usage"]["output_tokens_details"]["reasoning_tokens"] == 16
    assert answer["warnings"] == [warning]
    assert read_events(ask(http, stream=True).text)[-1]["type"] == "response.incomplete"


def test_only_the_item_that_was_open_is_incomplete(http, fake: FakeService):
    fake.script = [*CALLS[:6], (0, end(LENGTH))]
    answer = ask(http, tools=TOOLS).json()
    assert [item["status"] for item in answer["output"]] == ["completed"] * 2 + ["incomplete"]
    # The call was not whole: who goes on from here goes on without it.
    http.post(PATH, json={"input": "on", "previous_response_id": answer["id"]})
    assert [m["role"] for m in fake.seen[-1].messages] == ["user", "assistant", "user"]
    assert "tool_calls" not in fake.seen[-1].messages[1]


def test_a_call_that_is_whole_is_complete_though_the_answer_was_cut(http, fake: FakeService):
    """Case 26."""
    fake.script = [*CALLS[4:5], (0, Delta(calls=(CallDelta(0, arguments="{}"),))), (0, end(LENGTH))]
    answer = ask(http, tools=TOOLS).json()
    assert (answer["status"], answer["output"][0]["status"]) == ("incomplete", "completed")


def test_scores_are_those_of_the_text(http, fake: FakeService):
    scores = [ScoredToken(sign.encode(), -0.5, ((sign.encode(), -0.5),)) for sign in "abc"]
    fake.script = [
        (0, Delta(scores=tuple(scores[:1]))), (0, Delta(content="ab")),
        (0, Delta(scores=tuple(scores[1:2]))), (0, Delta(content="c", scores=tuple(scores[2:]))),
        (0, end()),
    ]  # fmt: skip
    events = read_events(ask(http, stream=True, top_logprobs=1).text)
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [(e["delta"], [s["token"] for s in e["logprobs"]]) for e in deltas] == [
        ("ab", ["a"]), ("", ["b"]), ("c", ["c"]),
    ]  # fmt: skip
    part = events[-1]["response"]["output"][0]["content"][0]
    assert [score["token"] for score in part["logprobs"]] == ["a", "b", "c"]
    assert part["logprobs"][0]["top_logprobs"] == [{"token": "a", "logprob": -0.5, "bytes": [97]}]
    assert fake.seen[-1].answer.logprobs == 1


@pytest.mark.parametrize("failure", [ApiError(500, "broke", "engine_failed"), ValueError("secret")])
def test_a_failure_in_a_stream_is_its_last_event(http, fake: FakeService, failure):
    fake.script = [*say("a")[:1], failure]
    *_, last = read_events(ask(http, stream=True).text)
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    error = last["response"]["error"]
    assert error["code"] == "server_error"
    assert error["message"]
    assert "secret" not in error["message"]
    assert fake.open == 0
    assert http.get(f"{PATH}/{last['response']['id']}").json() == last["response"]


def test_a_failure_of_a_whole_answer_is_an_error(http, fake: FakeService):
    fake.script = [*say("a")[:1], ApiError(500, "broke", "engine_failed")]
    answer = http.post(PATH, json={"input": "hi"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "engine_failed")
    fake.refusal = ApiError(429, "full", "server_overloaded", retry_after=1)
    for stream in (False, True):
        assert http.post(PATH, json={"input": "hi", "stream": stream}).status_code == 429
    assert fake.open == 0
