"""The real openai package against the server."""

from __future__ import annotations

import json

import openai
import pytest
from pydantic import BaseModel

from builders.fake_service import FakeService, end, say
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.events import TOOL_CALLS, CallDelta, Delta, ScoredToken
from ninfer_runtime.server.http_options import HttpOptions

HI = [{"role": "user", "content": "hi"}]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}},
    }
]


class Point(BaseModel):
    x: int


@pytest.fixture
def client(serve):
    server = serve(HttpOptions(keys=("sk-test",)))
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0) as found:
        yield found


def test_whole_answer(client: openai.OpenAI):
    answer = client.chat.completions.create(model="demo", messages=HI, logprobs=False)
    assert answer.choices[0].message.content == "Hello"
    assert answer.usage.prompt_tokens_details.cached_tokens == 2
    assert answer.usage.completion_tokens_details.reasoning_tokens == 1
    assert answer.timings["predicted_n"] == 3
    assert answer._request_id.startswith("req_")


def test_stream_helper_joins_reasoning_text_and_calls(client: openai.OpenAI, fake: FakeService):
    fake.script = [
        (0, Delta(reasoning="hm")),
        (0, Delta(content="see")),
        (0, Delta(calls=(CallDelta(0, "call_1", "f", '{"a":'),))),
        (0, Delta(calls=(CallDelta(0, arguments="1}"),))),
        (0, end(TOOL_CALLS)),
    ]
    with client.chat.completions.stream(
        model="demo", messages=HI, tools=TOOLS, stream_options={"include_usage": True}
    ) as stream:
        events = [event.type for event in stream]
        answer = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in events
    message = answer.choices[0].message
    assert message.content == "see"
    assert message.tool_calls[0].function.arguments == '{"a":1}'
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.usage.total_tokens == 10
    assert message.reasoning_content == "hm"


def test_an_answer_goes_back_as_history(client: openai.OpenAI, fake: FakeService):
    fake.script = [(0, Delta(calls=(CallDelta(0, "call_1", "f", "{}"),))), (0, end(TOOL_CALLS))]
    message = (
        client.chat.completions.create(model="demo", messages=HI, tools=TOOLS).choices[0].message
    )
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "42"}
    history = [*HI, message, result]
    client.chat.completions.create(model="demo", messages=history, tools=TOOLS)
    seen = fake.seen[-1].messages
    assert seen[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert seen[2] == result


def test_structured_output_helper(client: openai.OpenAI, fake: FakeService):
    fake.script = say('{"x"', ":3}")
    answer = client.chat.completions.parse(model="demo", messages=HI, response_format=Point)
    assert answer.choices[0].message.parsed == Point(x=3)
    constraint = fake.seen[0].answer.constraint
    assert constraint.kind == "json_schema"
    assert json.loads(constraint.text)["properties"]["x"]["type"] == "integer"


def test_strict_tools_helper(client: openai.OpenAI, fake: FakeService):
    tool = openai.pydantic_function_tool(Point, name="f")
    fake.script = [(0, Delta(calls=(CallDelta(0, "c", "f", '{"x":3}'),))), (0, end(TOOL_CALLS))]
    answer = client.chat.completions.parse(model="demo", messages=HI, tools=[tool])
    assert answer.choices[0].message.tool_calls[0].function.parsed_arguments == Point(x=3)
    assert fake.seen[0].tools[0]["function"]["strict"] is True


def test_logprobs(client: openai.OpenAI, fake: FakeService):
    fake.script = [(0, Delta(content="a", scores=(ScoredToken(b"a", -0.5, ((b"a", -0.5),)),)))]
    fake.script.append((0, end()))
    answer = client.chat.completions.create(
        model="demo", messages=HI, logprobs=True, top_logprobs=1
    )
    (token,) = answer.choices[0].logprobs.content
    assert (token.token, token.bytes, token.logprob) == ("a", [97], -0.5)
    assert token.top_logprobs[0].token == "a"


def test_extra_body_reaches_the_fields_of_other_servers(client: openai.OpenAI, fake: FakeService):
    extra = {"top_k": 5, "chat_template_kwargs": {"enable_thinking": False}}
    client.chat.completions.create(model="demo", messages=HI, extra_body=extra)
    assert fake.seen[0].answer.sampling.top_k == 5
    assert fake.seen[0].thinking.enabled is False


def test_errors_are_the_packages_own(client: openai.OpenAI, fake: FakeService):
    def ask(**more):
        return client.chat.completions.create(**{"model": "demo", "messages": HI, **more})

    with pytest.raises(openai.BadRequestError) as caught:
        ask(extra_body={"foo": 1})
    assert (caught.value.param, caught.value.code) == ("foo", "unknown_parameter")
    with pytest.raises(openai.NotFoundError):
        ask(model="gpt")
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()
    fake.script = [*say("a")[:1], ApiError(500, "broke", "generation_failed")]
    with pytest.raises(openai.InternalServerError):
        ask()
    with pytest.raises(openai.APIError, match="broke"):
        list(ask(stream=True))
    fake.refusal = ApiError(429, "full", "server_overloaded", retry_after=1)
    with pytest.raises(openai.RateLimitError):
        ask()


def test_completions_and_models(client: openai.OpenAI):
    answer = client.completions.create(model="demo", prompt=["a", "b"], echo=True)
    assert [choice.text for choice in answer.choices] == ["aHello", "bHello"]
    pieces = client.completions.create(model="demo", prompt="a", stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == "Hello"
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").owned_by == "ninfer"
