"""Laws of a request's tools, their types and the calls that can be forced."""

from __future__ import annotations

import json
import random

import pytest

from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.answer_parser import AnswerParser
from ninfer_runtime.frontend.tool_calls.forcing import ToolChoice, force_calls, offer_tools
from ninfer_runtime.frontend.tool_calls.schema_kinds import admitted_kinds
from ninfer_runtime.frontend.tool_calls.tool_set import read_tools


def tool(name, properties, required=(), **more):
    schema = {"type": "object", "properties": properties, "required": list(required)}
    strict = more.pop("strict", False)
    function = {"name": name, "strict": strict, "parameters": {**schema, **more}}
    return {"type": "function", "function": function}


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        ({"type": "integer"}, {"integer"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"type": "number"}, {"number", "integer"}),
        ({"enum": ["a", 1]}, {"string", "integer"}),
        ({"const": True}, {"boolean"}),
        ({"anyOf": [{"type": "array"}, {"type": "null"}]}, {"array", "null"}),
        ({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}, {"string"}),
        ({"$ref": "#/$defs/A"}, {"object"}),
        ({"$ref": "#/$defs/loop"}, None),
        ({"type": "integer", "nullable": True}, {"integer", "null"}),
        ({"anyOf": [{"type": "array"}, {}]}, None),
        ({}, None),
        (True, None),
    ],
)
def test_kinds_are_read_from_the_schema(schema, kinds):
    """TC-10"""
    root = {"$defs": {"A": {"properties": {}}, "loop": {"$ref": "#/$defs/loop"}}}
    assert admitted_kinds(schema, root) == kinds


@pytest.mark.parametrize("tools", [None, [], ()])
def test_case_32_no_tools_and_empty_tools_are_the_same(tools):
    """TC-20, case 32"""
    assert not read_tools(tools)


WRONG = {
    "tools: tools is not a list": {},
    "tools[0]: tool is not an object": ["f"],
    "tools[0]: tool is not a function": [{"type": "web_search"}],
    "tools[0].function.name: function has no name": [{"type": "function", "function": {}}],
    "tools[1].function.name: not a name": [tool("a", {}), tool("a<b", {})],
    "tools[0].function.parameters: parameters is not": [
        {"function": {"name": "f", "parameters": 1}}
    ],
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_tool_is_named(text):
    with pytest.raises(RequestError) as caught:
        read_tools(WRONG[text])
    assert str(caught.value).startswith(text)


def test_case_32_choices_that_cannot_be_met_name_the_field():
    """TC-20, case 32"""
    tools = read_tools([tool("f", {})])
    for some, choice in (
        (tools, ToolChoice("named", ("g",))),
        (read_tools(None), ToolChoice("required")),
    ):
        with pytest.raises(RequestError, match=r"^tool_choice: "):
            offer_tools(some, choice)
    assert not offer_tools(tools, ToolChoice("none"))
    assert offer_tools(tools, ToolChoice()) is tools


def nest(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


def test_case_30_many_tools_and_deep_schemas_are_read():
    """TC-20, case 30"""
    many = [
        tool(f"t{i}", {"a": {"description": "d" * 2048, "type": "integer"}}) for i in range(200)
    ]
    assert len(read_tools(many).tools) == 200
    assert "deep" in read_tools([tool("deep", {"v": nest(100)})])
    with pytest.raises(RequestError, match="nests too deeply"):
        read_tools([tool("deep", {"v": nest(3000)})])


P = {"type": "object", "properties": {"k": {"type": "boolean"}}, "required": ["k"]}
TOOLS = [
    tool(
        "f",
        {
            "a": {"type": "string"},
            "b": {"type": "integer"},
            "e": {"enum": ["x", "y"]},
            "o": {"$ref": "#/$defs/P"},
        },
        ["a", "b"],
        **{"$defs": {"P": {**P, "additionalProperties": False}}},
    ),
    tool("g", {}),
]


def call(function, **arguments):
    text = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments.items())
    return f"<tool_call>\n<function={function}>\n{text}</function>\n</tool_call>"


@pytest.fixture(scope="module")
def tokens():
    """Every byte a token, and one that ends."""
    import llguidance

    class Bytes:
        eos_token_id, bos_token_id = 256, None
        tokens = [bytes([i]) for i in range(256)] + [b"<end>"]
        special_token_ids = (256,)

        def __call__(self, text):
            return list(text if isinstance(text, bytes) else text.encode())

    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()), n_vocab=257)


@pytest.fixture
def accepts(tokens):
    import llguidance

    def accept(grammar, text):
        matcher = llguidance.LLMatcher(tokens, llguidance.grammar_from("lark", grammar))
        assert not matcher.is_error(), matcher.get_error()
        return matcher.consume_tokens(list(text.encode())) and matcher.is_accepting()

    return accept


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (call("f", a="x <b> \n\n</p", b="5"), True),
        (call("f", a="", b="-5", e="y", o='{"k": true}'), True),
        (call("f", a="x", b="five"), False),
        (call("f", a="x"), False),
        (call("f", a="x", b=1, e="z"), False),
        (call("f", a="x", b=1, o='{"k": 1}'), False),
        (call("g"), True),
        (call("g") + "\n" + call("g"), True),
        (call("h"), False),
        ("hi", False),
        ("hi " + call("g"), False),
        ("", False),
    ],
)
def test_required_permits_calls_of_the_schema_and_nothing_else(accepts, text, right):
    """TC-21"""
    assert accepts(force_calls(read_tools(TOOLS), ToolChoice("required")), text) is right


def test_choice_and_parallel_narrow_what_is_permitted(accepts):
    """TC-21"""
    tools = read_tools(TOOLS)
    one = force_calls(tools, ToolChoice("required"), parallel=False)
    assert accepts(one, call("g")) and not accepts(one, call("g") + "\n" + call("g"))
    named = force_calls(tools, ToolChoice("named", ("g",)))
    assert accepts(named, call("g")) and not accepts(named, call("f", a="x", b=1))
    auto = force_calls(tools, ToolChoice("auto", ("g",)))
    assert accepts(auto, "so\n\n" + call("g")) and accepts(auto, "") and accepts(auto, "hello")
    assert not accepts(auto, "so\n\n" + call("f", a="x", b=1))
    assert force_calls(tools, ToolChoice()) is None
    assert force_calls(tools, ToolChoice("none")) is None


def test_strict_tools_are_held_to_their_schema(accepts):
    """TC-21"""
    strict = tool("f", {"a": {"type": "integer"}}, ["a"], strict=True)
    tools = read_tools([strict, {"type": "function", "function": {"name": "q"}}])
    grammar = force_calls(tools, ToolChoice())
    assert accepts(grammar, "so " + call("f", a=1)) and not accepts(grammar, call("f", a="x"))
    assert accepts(grammar, call("q", z="1", y="2"))


def test_case_30_deep_schemas_can_be_forced(accepts):
    """TC-21, case 30"""
    deep = read_tools([tool("d", {"v": nest(100)})])
    assert accepts(force_calls(deep, ToolChoice("required")), call("d", v='{"x": {}}'))


def test_whatever_a_forced_answer_is_it_is_one_call(tokens):
    """TC-21: the grammar and the parser agree."""
    import llguidance

    tools, draw, calls = read_tools(TOOLS), random.Random(5), 0
    grammar = llguidance.grammar_from("lark", force_calls(tools, ToolChoice("required"), False))
    for _ in range(30):
        matcher, text = llguidance.LLMatcher(tokens, grammar), b""
        while len(text) < 400 and not matcher.is_accepting():
            mask = matcher.compute_bitmask()
            allowed = [i for i in range(128) if mask[i // 8] >> (i % 8) & 1]
            # Closing soon: what a value needs to end counts more than another character.
            wanted = next((i for i in b"<\n" if i in allowed and draw.random() < 0.5), None)
            token = wanted if wanted is not None else draw.choice(allowed)
            assert matcher.consume_tokens([token])
            text += bytes([token])
        if matcher.is_accepting():
            calls += 1
            parser = AnswerParser(False, tools)
            pieces = [*parser.push(text.decode()), *parser.finish()]
            assert parser.complete_calls == 1 and not any(piece.content for piece in pieces)
            joined = "".join(delta.arguments for piece in pieces for delta in piece.calls)
            assert isinstance(json.loads(joined), dict)
    assert calls > 3
