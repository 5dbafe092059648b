"""The real anthropic package against the Messages API."""

from __future__ import annotations

import json

import anthropic
import pytest
from pydantic import BaseModel

from builders.fake_service import FakeService, say
from builders.scripted_calls import ONE_CALL
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.http_options import HttpOptions

HI = [{"role": "user", "content": "hi"}]
TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {"a": {}}}}
ASK = {"model": "claude-x", "max_tokens": 64, "messages": HI}


class Point(BaseModel):
    x: int


@pytest.fixture
def client(serve):
    server = serve(HttpOptions(keys=("sk-test",)))
    with anthropic.Anthropic(base_url=server.url, api_key="sk-test", max_retries=0) as found:
        yield found


def test_text_and_counts(client: anthropic.Anthropic):
    answer = client.messages.create(**ASK, system="be terse", metadata={"user_id": "u"})
    assert answer.content[0].text == "Hello"
    assert (answer.stop_reason, answer.model) == ("end_turn", "claude-x")
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens) == (5, 2)
    assert answer._request_id.startswith("req_")
    assert client.messages.count_tokens(model="x", messages=HI).input_tokens == 7
    beta = client.beta.messages.create(
        **ASK,
        betas=["context-management-2025-06-27"],
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    )
    assert beta.content[0].text == "Hello"


def test_stream_helper_joins_everything(client: anthropic.Anthropic, fake: FakeService):
    fake.script = ONE_CALL
    with client.messages.stream(**ASK, tools=[TOOL]) as stream:
        kinds = [event.type for event in stream]
        answer = stream.get_final_message()
    assert {"thinking", "signature", "text", "input_json", "message_stop"} <= set(kinds)
    thought, text, call = answer.content
    assert (thought.thinking, thought.signature, text.text) == ("hm", "ninfer", "see")
    assert (call.name, call.input, answer.stop_reason) == ("f", {"a": 1}, "tool_use")
    assert answer.usage.output_tokens == 3


def test_tools_go_round_with_the_packages_own_objects(client, fake: FakeService):
    fake.script = ONE_CALL
    first = client.messages.create(**ASK, tools=[TOOL])
    result = {"type": "tool_result", "tool_use_id": first.content[2].id, "content": "42"}
    history = [
        *HI,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    client.messages.create(**{**ASK, "messages": history}, tools=[TOOL])
    turn = fake.seen[-1].messages[1]
    assert turn["reasoning_content"] == "hm"
    assert turn["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert fake.seen[-1].messages[2]["content"] == "42"


def test_structured_output_helper(client: anthropic.Anthropic, fake: FakeService):
    fake.script = say('{"x"', ":3}")
    answer = client.messages.parse(**ASK, output_format=Point)
    assert answer.parsed_output == Point(x=3)
    constraint = fake.seen[0].answer.constraint
    assert json.loads(constraint.text)["properties"]["x"]["type"] == "integer"


def test_errors_are_the_packages_own(client: anthropic.Anthropic, fake: FakeService):
    with pytest.raises(anthropic.BadRequestError, match="foo"):
        client.messages.create(**ASK, extra_body={"foo": 1})
    with pytest.raises(anthropic.AuthenticationError):
        client.with_options(api_key="wrong").messages.create(**ASK)
    fake.script = [*say("a")[:1], ApiError(500, "broke", "engine_failed")]
    with pytest.raises(anthropic.InternalServerError, match="broke"):
        client.messages.create(**ASK)
    with pytest.raises(anthropic.APIStatusError, match="broke"):
        list(client.messages.create(**ASK, stream=True))
    fake.refusal = ApiError(429, "full", "server_overloaded", retry_after=1)
    with pytest.raises(anthropic.APIStatusError) as caught:
        client.messages.create(**ASK)
    assert caught.value.status_code == 529
