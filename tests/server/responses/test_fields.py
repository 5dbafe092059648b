"""Every field has an effect, is a documented no-op or is refused by its name (HT-5, HT-31)."""

from __future__ import annotations

import httpx
import pytest

from builders.fake_service import FakeService
from ninfer_runtime.server.fields import NO_OPS
from ninfer_runtime.server.requests import Constraint, SamplingFields, ThinkingFields, ToolChoice

PATH = "/v1/responses"
F = {"type": "function", "name": "f", "parameters": {"type": "object"}}


def item(**fields):
    return {"input": [fields]}


def part(**fields):
    return item(role="user", content=[fields])


REFUSED = [
    ({"foo": 1}, "foo", "unknown_parameter"),
    ({"messages": []}, "messages", "unknown_parameter"),
    ({"max_tokens": 5}, "max_tokens", "unknown_parameter"),
    ({"stop": "x"}, "stop", "unknown_parameter"),
    ({"input": None}, "input", "missing_parameter"),
    ({"input": []}, "input", "missing_parameter"),
    ({"input": 5}, "input", "invalid_value"),
    ({"input": [5]}, "input[0]", "invalid_value"),
    (item(type="hologram"), "input[0].type", "invalid_value"),
    (item(type="web_search_call", id="ws_1"), "input[0].type", "invalid_value"),
    (item(role="user"), "input[0].content", "missing_parameter"),
    (item(content="x"), "input[0].role", "missing_parameter"),
    (item(role="bot", content="x"), "input[0].role", "invalid_value"),
    (item(role="user", content="x", y=1), "input[0].y", "unknown_parameter"),
    (item(role="user", content="x", output="y"), "input[0].output", "invalid_value"),
    (item(type="function_call", name="f", call_id="c"), "input[0].arguments", "missing_parameter"),
    (item(type="function_call_output", output=""), "input[0].call_id", "missing_parameter"),
    (item(type="reasoning", summary=[{"type": "x"}]), "input[0].summary[0].type", "invalid_value"),
    (item(type="item_reference"), "input[0].id", "missing_parameter"),
    (part(type="input_text"), "input[0].content[0].text", "missing_parameter"),
    (part(type="input_text", text=3), "input[0].content[0].text", "invalid_value"),
    (part(type="input_text", text="", z=3), "input[0].content[0].z", "unknown_parameter"),
    (part(type="input_image", file_id="f"), "input[0].content[0].file_id", "invalid_value"),
    (part(type="input_image"), "input[0].content[0].image_url", "missing_parameter"),
    (part(type="input_file", file_data="x"), "input[0].content[0].type", "modality_not_supported"),
    (part(type="image_url", image_url="x"), "input[0].content[0].type", "invalid_value"),
    ({"instructions": 3}, "instructions", "invalid_value"),
    ({"max_output_tokens": 0}, "max_output_tokens", "invalid_value"),
    ({"temperature": 3}, "temperature", "invalid_value"),
    ({"metadata": {"a": 1}}, "metadata.a", "invalid_value"),
    ({"metadata": {str(i): "" for i in range(17)}}, "metadata", "invalid_value"),
    ({"reasoning": {"effort": "banana"}}, "reasoning.effort", "reasoning_effort_not_supported"),
    ({"reasoning": {"summary": "long"}}, "reasoning.summary", "invalid_value"),
    ({"reasoning": {"x": 1}}, "reasoning.x", "unknown_parameter"),
    (
        {"reasoning": {"effort": "none"}, "enable_thinking": True},
        "reasoning.effort",
        "conflicting_template_option",
    ),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type", "invalid_value"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", "missing_parameter"),
    ({"text": {"x": 1}}, "text.x", "unknown_parameter"),
    ({"tools": {}}, "tools", "invalid_value"),
    ({"tools": [{"name": "f"}]}, "tools[0].type", "missing_parameter"),
    ({"tools": [{"type": "function"}]}, "tools[0].name", "missing_parameter"),
    ({"tools": [{**F, "x": 1}]}, "tools[0].x", "unknown_parameter"),
    ({"tools": [{**F, "name": "a b"}]}, "tools[0].name", "invalid_value"),
    ({"tools": [{**F, "parameters": 3}]}, "tools[0].parameters", "invalid_value"),
    ({"tools": [F, F]}, "tools[1].name", "invalid_value"),
    ({"tools": [{"type": "namespace", "name": "n"}]}, "tools[0].tools", "missing_parameter"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    (
        {"tools": [{"type": "web_search"}], "tool_choice": "required"},
        "tool_choice",
        "invalid_value",
    ),
    ({"tools": [F], "tool_choice": "sometimes"}, "tool_choice", "invalid_value"),
    ({"tools": [F], "tool_choice": {"type": "web_search"}}, "tool_choice.type", "invalid_value"),
    (
        {"tools": [F], "tool_choice": {"type": "function", "name": "g"}},
        "tool_choice",
        "invalid_value",
    ),
    ({"include": ["everything"]}, "include[0]", "invalid_value"),
    ({"top_logprobs": 21}, "top_logprobs", "invalid_value"),
    ({"stream_options": {}}, "stream_options", "invalid_value"),
    ({"truncation": "auto"}, "truncation", "invalid_value"),
    ({"background": True}, "background", "invalid_value"),
    ({"conversation": "conv_1"}, "conversation", "invalid_value"),
    ({"prompt": {"id": "p"}}, "prompt", "invalid_value"),
    ({"model": 5}, "model", "invalid_value"),
]


@pytest.mark.parametrize(("fields", "param", "code"), REFUSED, ids=lambda value: str(value)[:60])
@pytest.mark.parametrize("path", [PATH, f"{PATH}/input_tokens"])
def test_what_has_no_effect_is_refused_by_name(http: httpx.Client, fake, path, fields, param, code):
    answer = http.post(path, json={"input": "hi", **fields})
    error = answer.json()["error"]
    assert answer.status_code == 400, error
    assert (error["param"], error["code"]) == (param, code), error
    assert param.split(".")[-1] in error["message"]
    assert not fake.seen


def test_what_is_not_here_is_a_404(http: httpx.Client, fake: FakeService):
    """HT-30, HT-33."""
    for fields, param, code in (
        ({"model": "gpt"}, "model", "model_not_found"),
        ({"previous_response_id": "resp_x"}, "previous_response_id", "response_not_found"),
        (
            {"input": [{"type": "item_reference", "id": "x"}]},
            "input[0].id",
            "item_not_found",
        ),
    ):
        answer = http.post(PATH, json={"input": "hi", **fields})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["code"]) == (404, param, code)
    assert not fake.seen


def test_case_81_hints_are_accepted_and_tools_of_servers_not_offered(http, fake: FakeService):
    """Case 81."""
    body = {
        "model": "demo", "input": "hi", "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "xhigh", "summary": "auto"}, "prompt_cache_key": "k",
        "tools": [
            {"type": "web_search", "search_context_size": "high", "anything": {"x": []}}, F,
            {"type": "mcp", "server_label": "x", "server_url": "https://x"},
            {"type": "custom", "name": "apply patch", "format": {"type": "text"}},
            {"type": "tool_search"},
        ],
    }  # fmt: skip
    answer = http.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    (seen,) = fake.seen
    offered = {"name": "f", "parameters": {"type": "object"}}
    assert seen.tools == ({"type": "function", "function": offered},)
    assert seen.thinking == ThinkingFields(True, "xhigh")
    assert [tool["type"] for tool in answer.json()["tools"]] == [
        "web_search", "function", "mcp", "custom", "tool_search",
    ]  # fmt: skip


@pytest.mark.parametrize("value", [None, 5, "x", {"a": [1]}])
def test_documented_no_ops_are_accepted_with_any_value(http, fake: FakeService, value):
    text = {"type": "input_text", "text": "t", **dict.fromkeys(NO_OPS["input_part"], value)}
    body = {
        **dict.fromkeys(NO_OPS["responses"], value),
        "input": [{"role": "user", "content": [text], **dict.fromkeys(NO_OPS["item"], value)}],
        "tools": [{**F, **dict.fromkeys(NO_OPS["response_tool"], value)}],
        "reasoning": dict.fromkeys(NO_OPS["reasoning"], value),
        "text": dict.fromkeys(NO_OPS["text"], value),
    }
    answer = http.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    (seen,) = fake.seen
    assert seen.messages == ({"role": "user", "content": [{"type": "text", "text": "t"}]},)
    assert answer.json()["tools"] == [F]


def test_every_field_arrives(http, fake: FakeService):
    body = {
        "input": "hi", "temperature": 0.5, "top_p": 0.8, "top_k": 7, "min_p": 0.1, "seed": -3,
        "presence_penalty": 1.0, "frequency_penalty": -1.0, "repetition_penalty": 1.1,
        "logit_bias": {"5": -100}, "max_output_tokens": 9, "top_logprobs": 3,
        "thinking_budget": 77, "chat_template_kwargs": {"preserve_thinking": True},
        "parallel_tool_calls": False, "tools": [{**F, "strict": True}],
        "tool_choice": {"type": "allowed_tools", "mode": "required",
                        "tools": [{"type": "function", "name": "f"}]},
        "text": {"format": {"type": "json_schema", "name": "t", "schema": {"type": "null"}}},
    }  # fmt: skip
    assert http.post(PATH, json=body).status_code == 200
    (seen,) = fake.seen
    answer = seen.answer
    assert answer.sampling == SamplingFields(0.5, 7, 0.8, 0.1, 1.0, -1.0, 1.1, -3, {5: -100.0})
    assert (answer.max_tokens, answer.logprobs) == (9, 3)
    assert answer.constraint == Constraint("json_schema", '{"type": "null"}')
    assert answer.constraint.param == "text.format"
    assert seen.thinking == ThinkingFields(True, None, 77)
    assert seen.template == {"preserve_thinking": True}
    assert (seen.parallel_calls, seen.tool_choice) == (False, ToolChoice("required", ("f",)))
    assert seen.tools[0]["function"]["strict"] is True


def test_functions_of_a_namespace_are_offered_under_their_whole_name(http, fake: FakeService):
    space = {"type": "namespace", "name": "crm", "description": "d", "tools": [F]}
    choice = {"type": "function", "namespace": "crm", "name": "f"}
    history = {
        "type": "function_call", "call_id": "c", "namespace": "crm", "name": "f", "arguments": "{}",
    }  # fmt: skip
    body = {"input": [history], "tools": [F, space], "tool_choice": choice}
    assert http.post(PATH, json=body).status_code == 200
    (seen,) = fake.seen
    assert [tool["function"]["name"] for tool in seen.tools] == ["f", "crm.f"]
    assert seen.tool_choice == ToolChoice("named", ("crm.f",))
    assert seen.messages[0]["tool_calls"][0]["function"]["name"] == "crm.f"
