"""The real openai package against the Responses API."""

from __future__ import annotations

import json

import openai
import pytest
from pydantic import BaseModel

from builders.fake_service import FakeService, end, say
from builders.scripted_calls import ONE_CALL
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.events import LENGTH, Delta

TOOL = {
    "type": "function", "name": "f", "strict": False,
    "parameters": {"type": "object", "properties": {"a": {}}},
}  # fmt: skip


class Point(BaseModel):
    x: int


@pytest.fixture
def client(serve):
    with openai.OpenAI(base_url=f"{serve().url}/v1", api_key="x", max_retries=0) as found:
        yield found


def test_text_kept_responses_and_counts(client: openai.OpenAI):
    answer = client.responses.create(model="demo", input="hi", reasoning={"effort": "low"})
    assert (answer.output_text, answer.status) == ("Hello", "completed")
    assert answer.usage.input_tokens_details.cached_tokens == 2
    assert client.responses.retrieve(answer.id) == answer
    items = list(client.responses.input_items.list(answer.id, limit=1))
    assert [item.content[0].text for item in items] == ["hi"]
    assert client.responses.input_tokens.count(model="demo", input="hi").input_tokens == 7
    client.responses.delete(answer.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)


def test_stream_helper_joins_everything(client: openai.OpenAI, fake: FakeService):
    fake.script = ONE_CALL
    with client.responses.stream(
        model="demo", input="hi", tools=[TOOL], reasoning={"summary": "auto"}
    ) as stream:
        events = list(stream)
        answer = stream.get_final_response()
    kinds = [event.type for event in events]
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert "response.reasoning_summary_text.delta" in kinds
    thought, message, call = answer.output
    assert (thought.content[0].text, thought.summary[0].text) == ("hm", "hm")
    assert message.content[0].text == "see"
    assert (call.name, json.loads(call.arguments)) == ("f", {"a": 1})


def test_tools_go_round_with_the_packages_own_objects(client: openai.OpenAI, fake: FakeService):
    fake.script = ONE_CALL
    input = [{"role": "user", "content": "hi"}]
    first = client.responses.parse(model="demo", input=input, tools=[TOOL], store=False)
    input += first.output
    input.append({"type": "function_call_output", "call_id": "call_1", "output": "42"})
    fake.script = say("done")
    second = client.responses.create(model="demo", input=input, tools=[TOOL], store=False)
    assert second.output_text == "done"
    turn = fake.seen[-1].messages[1]
    assert (turn["reasoning_content"], turn["content"]) == ("hm", "see")
    assert turn["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":1}'}


def test_structured_output_helper(client: openai.OpenAI, fake: FakeService):
    fake.script = say('{"x"', ":3}")
    answer = client.responses.parse(model="demo", input="hi", text_format=Point)
    assert answer.output_parsed == Point(x=3)
    constraint = fake.seen[0].answer.constraint
    assert json.loads(constraint.text)["properties"]["x"]["type"] == "integer"


def test_what_is_cut_or_fails_is_the_packages_own_event(client: openai.OpenAI, fake: FakeService):
    fake.script = [(0, Delta(reasoning="hm")), (0, end(LENGTH))]
    *_, last = client.responses.create(model="demo", input="hi", stream=True)
    assert (last.type, last.response.incomplete_details.reason) == (
        "response.incomplete", "max_output_tokens",
    )  # fmt: skip
    fake.script = [*say("a")[:1], ApiError(500, "broke", "engine_failed")]
    *_, last = client.responses.create(model="demo", input="hi", stream=True)
    assert (last.type, last.response.error.message) == ("response.failed", "broke")
    with pytest.raises(openai.InternalServerError):
        client.responses.create(model="demo", input="hi")
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="demo", input="hi", truncation="auto")
    assert caught.value.param == "truncation"
    with pytest.raises(openai.NotFoundError) as missing:
        client.responses.create(model="demo", input="hi", previous_response_id="resp_0")
    assert missing.value.code == "response_not_found"
