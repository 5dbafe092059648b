"""The Responses and the Messages API with the demo model and the packages of their makers."""

from __future__ import annotations

import base64
import json
from typing import Literal

import anthropic
import openai
import pytest
from pydantic import BaseModel

from builders.pictures import encode_picture, random_pixels
from builders.real_server import RealServer

SUM = "What is 2+2?"
PARAMETERS = {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
}  # fmt: skip
TOOL = {"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": False}
ANTHROPIC_TOOL = {"name": "get_weather", "input_schema": PARAMETERS}
WEATHER = "What is the weather in Paris?"
OFF = {"type": "disabled"}
# The package of this year does not know the field any more.
GREEDY = {"temperature": 0}


class Report(BaseModel):
    sky: Literal["clear", "grey"]
    rain: bool


@pytest.fixture(scope="module")
def responses(server: RealServer):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as found:
        yield found.responses


@pytest.fixture(scope="module")
def messages(server: RealServer):
    with anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0) as found:
        yield found.messages


def ask(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def test_all_dialects_say_the_same(server: RealServer, responses, messages):
    for thinking in (True, False):
        chat = server.chat(enable_thinking=thinking).json()
        message = chat["choices"][0]["message"]
        whole = responses.create(
            model="demo", input=SUM, temperature=0, extra_body={"enable_thinking": thinking}
        )
        assert whole.output_text == message["content"]
        kind = {"type": "adaptive"} if thinking else OFF
        other = messages.create(
            model="x", max_tokens=500, messages=ask(SUM), thinking=kind, extra_body=GREEDY
        )
        assert other.content[-1].text == message["content"]
        if thinking:
            assert whole.output[0].content[0].text == message["reasoning_content"]
            assert other.content[0].thinking == message["reasoning_content"]
        assert whole.usage.output_tokens == chat["usage"]["completion_tokens"]
        assert other.usage.output_tokens == chat["usage"]["completion_tokens"]
        counted = messages.count_tokens(model="x", messages=ask(SUM), thinking=kind).input_tokens
        assert counted == chat["usage"]["prompt_tokens"] == whole.usage.input_tokens


def test_streams_join_to_the_whole_answers(responses, messages):
    whole = responses.create(model="demo", input=SUM, temperature=0)
    with responses.stream(model="demo", input=SUM, temperature=0) as stream:
        deltas = [e.delta for e in stream if e.type == "response.output_text.delta"]
        assert stream.get_final_response().output_text == whole.output_text == "".join(deltas)
    fields = {"model": "x", "max_tokens": 500, "messages": ask(SUM), "extra_body": GREEDY}
    with messages.stream(**fields) as stream:
        joined = stream.get_final_message()
    assert joined.content[-1].text == messages.create(**fields).content[-1].text


def test_a_conversation_goes_on_by_its_id_from_what_is_cached(responses):
    first = responses.create(model="demo", input=SUM, temperature=0)
    second = responses.create(
        model="demo", input="And 3+3?", previous_response_id=first.id, temperature=0
    )
    assert second.usage.input_tokens > first.usage.input_tokens
    again = responses.create(
        model="demo", temperature=0,
        input=[*ask(SUM), *first.output, *ask("And 3+3?")],
    )  # fmt: skip
    assert again.usage.input_tokens == second.usage.input_tokens
    assert again.usage.input_tokens_details.cached_tokens > 0


def test_tools_are_called_and_their_results_read(responses, messages):
    first = responses.create(
        model="demo", input=WEATHER, tools=[TOOL], tool_choice="required", temperature=0
    )
    call = next(item for item in first.output if item.type == "function_call")
    assert (call.name, type(json.loads(call.arguments))) == ("get_weather", dict)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    second = responses.create(
        model="demo", input=[result], previous_response_id=first.id, tools=[TOOL], temperature=0
    )
    assert second.status == "completed"
    assert second.usage.input_tokens > first.usage.input_tokens
    fields = {
        "model": "x", "max_tokens": 300, "tools": [ANTHROPIC_TOOL],
        "tool_choice": {"type": "any"}, "extra_body": GREEDY,
    }  # fmt: skip
    with messages.stream(**fields, messages=ask(WEATHER)) as stream:
        answer = stream.get_final_message()
    assert answer.stop_reason == "tool_use"
    use = answer.content[-1]
    assert (use.name, set(use.input)) == ("get_weather", {"city"})
    block = {"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}
    history = [
        *ask(WEATHER),
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [block]},
    ]
    fields["tool_choice"] = {"type": "none"}
    after = messages.create(**fields, messages=history)
    assert after.stop_reason in ("end_turn", "max_tokens")


def test_structured_answers_match(responses, messages):
    answer = responses.parse(
        model="demo", input=SUM, text_format=Report, temperature=0,
        extra_body={"thinking_budget": 20},
    )  # fmt: skip
    assert isinstance(answer.output_parsed, Report)
    assert answer.usage.output_tokens_details.reasoning_tokens > 0
    other = messages.parse(
        model="x", max_tokens=300, messages=ask(SUM), output_format=Report, thinking=OFF
    )
    assert isinstance(other.parsed_output, Report)


def test_thinking_ends_at_its_budget(messages):
    fields = {"model": "x", "max_tokens": 400, "messages": ask(SUM), "extra_body": GREEDY}
    answer = messages.create(**fields, thinking={"type": "enabled", "budget_tokens": 12})
    assert 0 < answer.usage.output_tokens_details.thinking_tokens <= 60
    assert [block.type for block in answer.content] == ["thinking", "text"]
    # Case 37: what thinking eats up is said.
    cut = messages.create(**{**fields, "max_tokens": 5}, thinking={"type": "adaptive"})
    assert (cut.stop_reason, [block.type for block in cut.content]) == ("max_tokens", ["thinking"])
    assert "reasoning" in cut.warnings[0]


def test_stop_sequences_and_limits_have_their_reasons(server: RealServer, messages):
    fields = {"model": "x", "messages": ask(SUM), "extra_body": GREEDY, "thinking": OFF}
    whole = messages.create(**fields, max_tokens=100).content[0].text
    stop = whole[len(whole) // 2 :][:3]
    answer = messages.create(**fields, max_tokens=100, stop_sequences=[stop])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", stop)
    assert answer.content[0].text == whole[: whole.index(stop)]
    body = {"model": "x", "messages": ask("x " * 3000)}
    refused = server.http.post("/v1/messages", json=body)
    assert refused.status_code == 400
    assert "2048" in refused.json()["error"]["message"]
    # What is too long can still be counted.
    counted = server.http.post("/v1/messages/count_tokens", json=body)
    assert counted.json()["input_tokens"] > 2048


def test_the_begin_of_an_answer_is_part_of_the_prompt(server: RealServer, messages):
    """HT-36."""
    fields = {"model": "x", "messages": ask(SUM), "extra_body": GREEDY}
    whole = messages.create(**fields, max_tokens=100, thinking=OFF)
    text = whole.content[0].text
    tokens = server.http.post("/tokenize", json={"content": text}).json()["tokens"]
    begin = server.http.post("/detokenize", json={"tokens": tokens[:1]}).json()["content"]
    assert 0 < len(begin) < len(text)
    fields["messages"] = [*ask(SUM), {"role": "assistant", "content": begin}]
    rest = messages.create(**fields, max_tokens=100)
    # The model would have begun like that: it goes on as it would have.
    assert begin + rest.content[0].text == text
    assert rest.usage.output_tokens_details.thinking_tokens == 0
    counts = [
        messages.count_tokens(model="x", messages=talk, thinking=OFF).input_tokens
        for talk in (ask(SUM), fields["messages"])
    ]
    assert counts[0] < counts[1]


def test_case_77_images_are_seen_in_messages_and_in_results(server: RealServer):
    """Case 77: the same picture costs the same tokens wherever it stands, and is not dropped."""
    data = base64.b64encode(encode_picture(random_pixels(64, 96))).decode()
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
    source = {"type": "base64", "media_type": "image/png", "data": data}
    block = {"type": "image", "source": source}

    def count(body: dict, path: str) -> int:
        answer = server.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["input_tokens"]

    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    costs = set()
    for parts in ([], [image]):
        output = [{"type": "input_text", "text": "shot"}, *parts]
        result = {"type": "function_call_output", "call_id": "c", "output": output}
        path = "/v1/responses/input_tokens"
        inputs = ([{"role": "user", "content": output}], [*ask("go"), call, result])
        costs.add(tuple(count({"input": input}, path) for input in inputs))
    (few, more) = sorted(costs)
    assert more[0] - few[0] == more[1] - few[1] > 4
    use = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [block]}
    talk = [
        *ask("go"),
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result, block]},
        {"role": "assistant", "content": "I see"},
    ]
    body = {"model": "x", "messages": talk}
    counted = count(body, "/v1/messages/count_tokens")
    answer = server.http.post("/v1/messages", json={**body, "max_tokens": 5})
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == counted
    assert usage["output_tokens"] > 0
    # Undecodable media is refused by its place.
    source["data"] = "AAAA"
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        answer = server.http.post(path, json={"model": "x", "messages": talk})
        assert answer.status_code == 400
        assert "messages[2].content[0].content[0]" in answer.json()["error"]["message"]
