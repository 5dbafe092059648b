"""POST /v1/completions: the legacy form (HT-13)."""

from __future__ import annotations

import json

import httpx
import pytest

from builders.fake_service import FakeService, end
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.events import Delta, ScoredToken

PATH = "/v1/completions"


def test_text_goes_on(http: httpx.Client, fake: FakeService):
    answer = http.post(PATH, json={"prompt": "abc", "max_tokens": 5}).json()
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    choice = {"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop"}
    assert answer["choices"] == [choice]
    assert answer["usage"]["total_tokens"] == 10
    assert answer["timings"]["prompt_n"] == 5
    assert (fake.seen[0].prompt, fake.seen[0].answer.max_tokens) == ("abc", 5)


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("", [""]),
        ([1, 2], [(1, 2)]),
        (["a", "b"], ["a", "b"]),
        ([[1], [2, 3]], [(1,), (2, 3)]),
    ],
)
def test_prompts_come_in_four_forms(http: httpx.Client, fake: FakeService, prompt, prompts):
    answer = http.post(PATH, json={"prompt": prompt}).json()
    assert [request.prompt for request in fake.seen] == prompts
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(prompts)))
    assert answer["usage"]["prompt_tokens"] == 7 * len(prompts)
    assert answer["timings"]["prompt_n"] == 5 * len(prompts)
    assert fake.open == 0


def test_choices_of_several_prompts_are_numbered_through(http: httpx.Client, fake: FakeService):
    fake.script = [(1, Delta(content="B")), (0, Delta(content="A")), (0, end()), (1, end())]
    answer = http.post(PATH, json={"prompt": ["x", "y"], "n": 2, "echo": True}).json()
    assert [choice["text"] for choice in answer["choices"]] == ["xA", "xB", "yA", "yB"]


def test_stream_says_the_same_as_the_whole(http: httpx.Client):
    body = {"prompt": ["x", "y"], "echo": True, "stream": True}
    text = http.post(PATH, json={**body, "stream_options": {"include_usage": True}}).text
    *events, done = [event.removeprefix("data: ") for event in text.split("\n\n") if event]
    chunks = [json.loads(event) for event in events]
    joined = {0: "", 1: ""}
    for chunk in chunks:
        for choice in chunk["choices"]:
            joined[choice["index"]] += choice["text"]
    assert (joined, done) == ({0: "xHello", 1: "yHello"}, "[DONE]")
    assert chunks[-1]["usage"]["prompt_tokens"] == 14
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


def test_logprobs_have_the_legacy_shape(http: httpx.Client, fake: FakeService):
    def scored(data: bytes) -> Delta:
        return Delta(content=data.decode(), scores=(ScoredToken(data, -1.0, ((data, -1.0),)),))

    fake.script = [(0, scored(b"ab")), (0, scored(b"c")), (0, end())]
    expected = {
        "tokens": ["ab", "c"], "token_logprobs": [-1.0, -1.0],
        "top_logprobs": [{"ab": -1.0}, {"c": -1.0}], "text_offset": [0, 2],
    }  # fmt: skip
    body = {"prompt": "x", "logprobs": 1}
    assert http.post(PATH, json=body).json()["choices"][0]["logprobs"] == expected
    text = http.post(PATH, json={**body, "stream": True}).text
    second = json.loads(text.split("\n\n")[1].removeprefix("data: "))
    assert second["choices"][0]["logprobs"]["text_offset"] == [2]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [[1], []]}, "prompt[1]"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": ["x"] * 65}, "prompt"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "best_of": 2}, "best_of"),
        ({"prompt": "a", "echo": True, "logprobs": 1}, "logprobs"),
        ({"prompt": "a", "messages": []}, "messages"),
        ({"prompt": "a", "tools": []}, "tools"),
    ],
)
def test_what_has_no_effect_is_refused_by_name(http: httpx.Client, fields, param):
    answer = http.post(PATH, json=fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_one_refused_prompt_lets_go_of_all(http: httpx.Client, fake: FakeService):
    """HT-9: nothing goes on behind a refusal."""
    fake.admission = [ApiError(503, "waited", "request_queue_timeout")]
    assert http.post(PATH, json={"prompt": ["a", "b", "c"]}).status_code == 503
    assert fake.open == 0
