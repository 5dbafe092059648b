"""Every field has an effect, is a documented no-op or is refused by its name (HT-5, HT-37)."""

from __future__ import annotations

import pytest

from builders.fake_service import FakeService
from ninfer_runtime.server.fields import NO_OPS
from ninfer_runtime.server.requests import Constraint, SamplingFields, ThinkingFields, ToolChoice

PATH = "/v1/messages"
HI = [{"role": "user", "content": "hi"}]
F = {"name": "f", "description": "d", "input_schema": {"type": "object"}}
OFFERED = {"name": "f", "description": "d", "parameters": {"type": "object"}}


def block(role: str = "user", **fields) -> dict:
    return {"messages": [{"role": role, "content": [fields]}]}


def source(**fields) -> dict:
    return block(type="image", source=fields)


PLACE = "messages[0].content[0]"
REFUSED = [
    ({"foo": 1}, "foo"),
    ({"stop": ["x"]}, "stop"),
    ({"model": ""}, "model"),
    ({"model": 5}, "model"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{**HI[0], "name": "x"}]}, "messages[0].name"),
    (block(type="hologram"), f"{PLACE}.type"),
    (block(type="document", source={}), f"{PLACE}.type"),
    (block(type="server_tool_use", id="x", name="y", input={}), f"{PLACE}.type"),
    (block(type="text"), f"{PLACE}.text"),
    (block(type="text", text=3), f"{PLACE}.text"),
    (block(type="text", text="", x=1), f"{PLACE}.x"),
    (block(type="text", text="", thinking="x"), f"{PLACE}.thinking"),
    (block(type="tool_use", id="a", name="f", input={}), f"{PLACE}.type"),
    (block("assistant", type="tool_result", tool_use_id="a"), f"{PLACE}.type"),
    (block("assistant", type="tool_use", id="a", name="f"), f"{PLACE}.input"),
    (block(type="tool_result"), f"{PLACE}.tool_use_id"),
    (
        block(
            type="tool_result",
            tool_use_id="a",
            content=[{"type": "thinking", "thinking": "x"}],
        ),
        f"{PLACE}.content[0].type",
    ),
    (source(type="file", file_id="f"), f"{PLACE}.source.type"),
    (source(type="base64", data="AAAA"), f"{PLACE}.source.media_type"),
    (source(type="url"), f"{PLACE}.source.url"),
    (source(type="url", url="https://x", data="A"), f"{PLACE}.source.data"),
    (source(type="url", url="https://127.0.0.1/x"), PLACE),
    ({"system": 3}, "system"),
    ({"system": [{"type": "image"}]}, "system[0].type"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": "x"}, "max_tokens"),
    ({"stop_sequences": [""]}, "stop_sequences[0]"),
    ({"stop_sequences": list("abcde")}, "stop_sequences"),
    ({"temperature": -1}, "temperature"),
    ({"top_k": 1.5}, "top_k"),
    ({"thinking": {"type": "sometimes"}}, "thinking.type"),
    ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "disabled", "budget_tokens": 9}}, "thinking.budget_tokens"),
    ({"output_config": {"effort": "banana"}}, "output_config.effort"),
    ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
    ({"output_format": {"type": "json_schema"}}, "output_format.schema"),
    ({"tools": {}}, "tools"),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
    ({"tools": [{"type": "custom", "input_schema": {}}]}, "tools[0].name"),
    ({"tools": [{**F, "parameters": {}}]}, "tools[0].parameters"),
    ({"tools": [{**F, "name": "a b"}]}, "tools[0].name"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": [F], "tool_choice": "any"}, "tool_choice"),
    ({"tools": [F], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"tools": [F], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice.name"),
    ({"tools": [F], "tool_choice": {"type": "auto", "name": "f"}}, "tool_choice.name"),
    ({"container": "x"}, "container"),
    ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
]


@pytest.mark.parametrize(("fields", "place"), REFUSED, ids=lambda value: str(value)[:70])
@pytest.mark.parametrize("path", [PATH, f"{PATH}/count_tokens"])
def test_what_has_no_effect_is_refused_by_name(http, fake: FakeService, path, fields, place):
    answer = http.post(path, json={"model": "x", "messages": HI, **fields})
    body = answer.json()
    assert (answer.status_code, body["type"]) == (400, "error"), body
    assert body["error"]["type"] == "invalid_request_error"
    assert place in body["error"]["message"]
    assert body["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    assert not fake.seen


@pytest.mark.parametrize("value", [None, 5, "x", {"a": [1]}])
def test_documented_no_ops_are_accepted_with_any_value(http, fake: FakeService, value):
    text = {"type": "text", "text": "t", **dict.fromkeys(NO_OPS["block"], value)}
    body = {
        "model": "x", **dict.fromkeys(NO_OPS["anthropic"], value),
        "messages": [{"role": "user", "content": [text]}], "system": [text],
        "tools": [{**F, **dict.fromkeys(NO_OPS["anthropic_tool"], value)}],
    }  # fmt: skip
    answer = http.post(f"{PATH}?beta=true", json=body)
    assert answer.status_code == 200, answer.text
    (seen,) = fake.seen
    assert seen.tools == ({"type": "function", "function": OFFERED},)
    assert seen.messages[1] == {"role": "user", "content": [{"type": "text", "text": "t"}]}


def test_every_field_arrives(http, fake: FakeService):
    body = {
        "model": "x", "messages": HI, "max_tokens": 9, "temperature": 0.5, "top_p": 0.8,
        "top_k": 7, "stop_sequences": ["a", "b"],
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "output_config": {
            "effort": "high", "format": {"type": "json_schema", "schema": {"type": "null"}},
        },
        "tools": [{**F, "strict": True}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    }  # fmt: skip
    answer = http.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    (seen,) = fake.seen
    assert seen.answer.sampling == SamplingFields(temperature=0.5, top_k=7, top_p=0.8)
    assert (seen.answer.max_tokens, seen.answer.stop) == (9, ("a", "b"))
    assert seen.answer.constraint == Constraint("json_schema", '{"type": "null"}')
    assert seen.answer.constraint.param == "output_config.format"
    # high is the nearest of low, medium and xhigh, the higher of two.
    assert seen.thinking == ThinkingFields(True, "xhigh", 2000)
    assert (seen.tool_choice, seen.parallel_calls) == (ToolChoice("named", ("f",)), False)
    assert seen.tools == ({"type": "function", "function": {**OFFERED, "strict": True}},)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ThinkingFields()),
        ({"thinking": {"type": "disabled"}}, ThinkingFields(False)),
        ({"thinking": {"type": "adaptive"}}, ThinkingFields(True)),
        ({"output_config": {"effort": "low"}}, ThinkingFields(True, "low")),
        (
            {"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}},
            ThinkingFields(False),
        ),
    ],
)
def test_thinking_in_every_spelling(http, fake: FakeService, fields, expected):
    assert http.post(PATH, json={"model": "x", "messages": HI, **fields}).status_code == 200
    assert fake.seen[0].thinking == expected


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, ToolChoice("auto")),
        ({"type": "none"}, ToolChoice("none")),
        ({"type": "any"}, ToolChoice("required")),
    ],
)
def test_choices_of_tools_arrive_in_one_form(http, fake: FakeService, choice, expected):
    body = {"model": "x", "messages": HI, "tools": [F], "tool_choice": choice}
    assert http.post(PATH, json=body).status_code == 200
    assert (fake.seen[0].tool_choice, fake.seen[0].parallel_calls) == (expected, True)


def test_tools_of_other_servers_are_accepted_and_not_offered(http, fake: FakeService):
    tools = [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "computer_20250124", "name": "computer", "display_width_px": 1024},
        {"type": "custom", **F},
    ]
    assert http.post(PATH, json={"model": "x", "messages": HI, "tools": tools}).is_success
    assert [tool["function"]["name"] for tool in fake.seen[0].tools] == ["f"]
