"""Every field has an effect, is a documented no-op or is refused by its name (HT-5)."""

from __future__ import annotations

import httpx
import pytest

from builders.fake_service import FakeService
from ninfer_runtime.server.fields import NO_OPS
from ninfer_runtime.server.requests import Constraint, SamplingFields, ToolChoice

HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
NAMED = {"name": "t", "schema": {"type": "object", "properties": {"a": {}}}}


def part(**fields):
    return [{"role": "user", "content": [fields]}]


REFUSED = [
    ({"foo": 1}, "foo", "unknown_parameter"),
    ({"best_of": 2}, "best_of", "unknown_parameter"),
    ({"echo": True}, "echo", "unknown_parameter"),
    ({"suffix": "x"}, "suffix", "unknown_parameter"),
    ({"messages": None}, "messages", "invalid_value"),
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": "hi"}, "messages", "invalid_value"),
    ({"messages": [5]}, "messages[0]", "invalid_value"),
    ({"messages": [{"content": "x"}]}, "messages[0].role", "missing_parameter"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_parameter"),
    ({"messages": [{"role": "bot", "content": ""}]}, "messages[0].role", "invalid_value"),
    (
        {"messages": [*HI, {"role": "user", "content": "", "x": 1}]},
        "messages[1].x",
        "unknown_parameter",
    ),
    (
        {
            "messages": [
                {"role": "user", "content": "", "tool_calls": [{"function": {"name": "f"}}]}
            ]
        },
        "messages[0].tool_calls",
        "invalid_value",
    ),
    ({"messages": part(type="text")}, "messages[0].content[0].text", "missing_parameter"),
    ({"messages": part(type="text", text=3)}, "messages[0].content[0].text", "invalid_value"),
    (
        {"messages": part(type="text", text="", y=1)},
        "messages[0].content[0].y",
        "unknown_parameter",
    ),
    ({"messages": part(type="hologram")}, "messages[0].content[0].type", "invalid_value"),
    (
        {"messages": part(type="input_audio", input_audio={})},
        "messages[0].content[0].type",
        "modality_not_supported",
    ),
    (
        {"messages": part(type="image_url", image_url={"url": 3})},
        "messages[0].content[0].image_url.url",
        "invalid_value",
    ),
    (
        {"messages": part(type="image_url", image_url="data:,", text="x")},
        "messages[0].content[0].text",
        "invalid_value",
    ),
    ({"temperature": "hot"}, "temperature", "invalid_value"),
    ({"temperature": True}, "temperature", "invalid_value"),
    ({"temperature": 2.1}, "temperature", "invalid_value"),
    ({"temperature": 10**400}, "temperature", "invalid_value"),
    ({"top_p": -0.1}, "top_p", "invalid_value"),
    ({"top_k": 1.5}, "top_k", "invalid_value"),
    ({"min_p": 2}, "min_p", "invalid_value"),
    ({"presence_penalty": 3}, "presence_penalty", "invalid_value"),
    ({"frequency_penalty": -3}, "frequency_penalty", "invalid_value"),
    ({"repetition_penalty": 0}, "repetition_penalty", "invalid_value"),
    ({"seed": 2**63}, "seed", "invalid_value"),
    ({"seed": "1"}, "seed", "invalid_value"),
    ({"stop": ""}, "stop", "invalid_value"),
    ({"stop": ["a", ""]}, "stop[1]", "invalid_value"),
    ({"stop": list("abcde")}, "stop", "invalid_value"),
    ({"stop": 5}, "stop", "invalid_value"),
    ({"n": 0}, "n", "invalid_value"),
    ({"n": 5}, "n", "n_not_supported"),
    ({"logit_bias": {"a": 1}}, "logit_bias.a", "invalid_value"),
    ({"logit_bias": {"1": 101}}, "logit_bias.1", "invalid_value"),
    ({"logit_bias": {"1000": 1}}, "logit_bias", "invalid_value"),
    ({"logit_bias": [1]}, "logit_bias", "invalid_value"),
    ({"max_tokens": 0}, "max_tokens", "invalid_value"),
    ({"max_tokens": -2}, "max_tokens", "invalid_value"),
    ({"max_tokens": 1.5}, "max_tokens", "invalid_value"),
    ({"max_completion_tokens": 0}, "max_completion_tokens", "invalid_value"),
    ({"stream": "yes"}, "stream", "invalid_value"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
    ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x", "unknown_parameter"),
    ({"logprobs": 1}, "logprobs", "invalid_value"),
    ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
    ({"tools": {}}, "tools", "invalid_value"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "invalid_value"),
    (
        {"tools": [{"type": "function", "function": {"name": "a b"}}]},
        "tools[0].function.name",
        "invalid_value",
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "a", "parameters": 3}}]},
        "tools[0].function.parameters",
        "invalid_value",
    ),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ({"tool_choice": "sometimes"}, "tool_choice", "invalid_value"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice",
        "invalid_value",
    ),
    ({"functions": [{}]}, "functions", "invalid_value"),
    ({"function_call": "auto"}, "function_call", "invalid_value"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "invalid_value"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "t", "schema": 5}}},
        "response_format.json_schema.schema",
        "invalid_value",
    ),
    ({"guided_json": {}, "guided_regex": "a"}, "guided_regex", "invalid_value"),
    (
        {"response_format": {"type": "json_object"}, "grammar": 'root ::= "a"'},
        "grammar",
        "invalid_value",
    ),
    ({"reasoning_effort": "banana"}, "reasoning_effort", "reasoning_effort_not_supported"),
    ({"reasoning_effort": 5}, "reasoning_effort", "invalid_value"),
    ({"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs.x", "unknown_parameter"),
    ({"chat_template_kwargs": 3}, "chat_template_kwargs", "invalid_value"),
    ({"thinking_budget": -1}, "thinking_budget", "invalid_value"),
    ({"modalities": ["audio"]}, "modalities[0]", "invalid_value"),
    ({"audio": {"voice": "x"}}, "audio", "invalid_value"),
    ({"verbosity": "low"}, "verbosity", "invalid_value"),
    ({"model": 5}, "model", "invalid_value"),
]


@pytest.mark.parametrize(("fields", "param", "code"), REFUSED, ids=lambda value: str(value)[:60])
def test_case_65_what_has_no_effect_is_refused_by_name(
    http: httpx.Client, fake, fields, param, code
):
    answer = http.post("/v1/chat/completions", json={"messages": HI, **fields})
    error = answer.json()["error"]
    assert answer.status_code == 400, error
    assert (error["param"], error["code"]) == (param, code)
    assert error["type"] == "invalid_request_error"
    assert param.split(".")[-1] in error["message"]
    assert not fake.seen


ACCEPTED = {
    "n": 1, "logprobs": False, "logit_bias": {}, "top_logprobs": 0, "tools": [],
    "tool_choice": "auto",
    "stop": [], "functions": [], "function_call": None, "modalities": ["text"], "audio": None,
    "response_format": {"type": "text"}, "parallel_tool_calls": True, "max_tokens": -1,
    "max_completion_tokens": None, "seed": None, "verbosity": "medium", "top_k": 20.0,
    "stream": False, "ignore_eos": False,
}  # fmt: skip


def test_case_65_harmless_values_change_nothing(http: httpx.Client, fake: FakeService):
    assert http.post("/v1/chat/completions", json={"messages": HI, **ACCEPTED}).status_code == 200
    assert http.post("/v1/chat/completions", json={"messages": HI}).status_code == 200
    odd, plain = fake.seen
    assert odd.answer.sampling == SamplingFields(top_k=20)
    assert (odd.tools, odd.tool_choice, odd.answer.max_tokens) == ((), ToolChoice(), None)
    assert plain.answer.sampling == SamplingFields()


@pytest.mark.parametrize("value", [None, 5, "x", {"a": [1]}])
def test_documented_no_ops_are_accepted_with_any_value(http: httpx.Client, fake, value):
    fields = dict.fromkeys(NO_OPS["chat"], value)
    message = {**HI[0], **dict.fromkeys(NO_OPS["message"], value)}
    text = {"type": "text", "text": "t", **dict.fromkeys(NO_OPS["part"], value)}
    tool = {**TOOL, **dict.fromkeys(NO_OPS["tool"], value)}
    messages = [message, {"role": "user", "content": [text]}]
    body = {"messages": messages, "tools": [tool], **fields}
    assert http.post("/v1/chat/completions", json=body).status_code == 200
    (seen,) = fake.seen
    assert seen.tools == (TOOL,)
    assert seen.messages[0] == HI[0]
    assert seen.messages[1]["content"] == [{"type": "text", "text": "t"}]


def test_case_65_every_sampling_field_arrives(http: httpx.Client, fake: FakeService):
    body = {
        "messages": HI, "temperature": 0.5, "top_k": 7, "top_p": 0.8, "min_p": 0.1,
        "presence_penalty": 1.0, "frequency_penalty": -1.0, "repetition_penalty": 1.1,
        "seed": -3, "logit_bias": {"5": -100, "6": 2.5}, "n": 2, "ignore_eos": True,
        "stop": ["a", "b"], "logprobs": True, "top_logprobs": 3, "max_tokens": 32,
        "max_completion_tokens": 1,
    }  # fmt: skip
    fake.script.append((1, fake.script[-1][1]))
    assert http.post("/v1/chat/completions", json=body).status_code == 200
    answer = fake.seen[0].answer
    assert answer.sampling == SamplingFields(
        0.5, 7, 0.8, 0.1, 1.0, -1.0, 1.1, -3, {5: -100.0, 6: 2.5}
    )
    assert (answer.choices, answer.ignore_eos, answer.stop) == (2, True, ("a", "b"))
    # Case 65: max_completion_tokens goes before max_tokens.
    assert (answer.logprobs, answer.max_tokens) == (3, 1)


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({"response_format": {"type": "json_object"}}, Constraint("json_object")),
        (
            {"response_format": {"type": "json_schema", "json_schema": NAMED}},
            Constraint("json_schema", '{"type": "object", "properties": {"a": {}}}'),
        ),
        ({"guided_json": {"type": "null"}}, Constraint("json_schema", '{"type": "null"}')),
        ({"guided_json": '{"type":"null"}'}, Constraint("json_schema", '{"type":"null"}')),
        ({"guided_regex": "a+"}, Constraint("regex", "a+")),
        ({"guided_choice": ["a.b", "c"]}, Constraint("regex", r"a\.b|c")),
        ({"guided_grammar": "start: /a/"}, Constraint("lark", "start: /a/")),
        ({"guided_grammar": 'root ::= "a"'}, Constraint("gbnf", 'root ::= "a"')),
        ({"grammar": 'root ::= "a"'}, Constraint("gbnf", 'root ::= "a"')),
        ({"grammar": 'root ::= "a"', "response_format": {"type": "text"}},
         Constraint("gbnf", 'root ::= "a"')),
    ],
)  # fmt: skip
def test_case_33_constraints_arrive_in_one_form(http: httpx.Client, fake, fields, constraint):
    """Case 33: never accepted and ignored."""
    assert http.post("/v1/chat/completions", json={"messages": HI, **fields}).status_code == 200
    assert fake.seen[0].answer.constraint == constraint


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "function": {"name": "f"}}, ToolChoice("named", ("f",))),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "f"}}],
                },
            },
            ToolChoice("required", ("f",)),
        ),
    ],
)
def test_choices_of_tools_arrive_in_one_form(http: httpx.Client, fake, choice, expected):
    body = {"messages": HI, "tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False}
    assert http.post("/v1/chat/completions", json=body).status_code == 200
    assert (fake.seen[0].tool_choice, fake.seen[0].parallel_calls) == (expected, False)


def test_tools_keep_the_clients_order_of_members(http: httpx.Client, fake: FakeService):
    tool = {"function": {"parameters": {"z": 1, "a": 2}, "name": "f"}, "type": "function"}
    assert http.post("/v1/chat/completions", json={"messages": HI, "tools": [tool]}).is_success
    (seen,) = fake.seen[0].tools
    assert list(seen) == ["function", "type"]
    assert list(seen["function"]) == ["parameters", "name"]
    assert list(seen["function"]["parameters"]) == ["z", "a"]
