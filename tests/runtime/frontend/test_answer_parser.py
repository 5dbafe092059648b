"""Laws of splitting an answer into reasoning, content and tool calls."""

from __future__ import annotations

import json
import random
import time
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_runtime.frontend.answer_parser import NO_TOOLS, AnswerParser
from ninfer_runtime.frontend.tool_calls.tool_set import read_tools


def tool(name, **properties):
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = read_tools(
    [
        tool(
            "f",
            a={"type": "string"},
            b={"type": "integer"},
            o={"type": "object"},
            n={"type": ["string", "null"]},
            include_body={"type": "boolean"},
        ),
        tool("g", a={"type": "integer"}),
        tool("Finish", answer={"type": "string"}),
    ]
)


def split(text, thinking=False, tools=TOOLS, portion=None, cut=False, parallel=True):
    """Return reasoning, content, calls as (name, arguments), complete calls and the open one."""
    numbers = count()
    parser = AnswerParser(thinking, tools, parallel=parallel, new_id=lambda: f"id{next(numbers)}")
    size = portion or max(len(text), 1)
    pieces = [p for i in range(0, len(text), size) for p in parser.push(text[i : i + size])]
    pieces += parser.finish(cut)
    names: list[str] = []
    arguments: list[list[str]] = []
    for delta in (delta for piece in pieces for delta in piece.calls):
        if delta.name is not None:
            assert (delta.index, delta.id) == (len(names), f"id{len(names)}")
            names.append(delta.name)
            arguments.append([])
        arguments[delta.index].append(delta.arguments)
    calls = list(zip(names, ("".join(parts) for parts in arguments), strict=True))
    reasoning = "".join(piece.reasoning for piece in pieces)
    content = "".join(piece.content for piece in pieces)
    complete = parser.complete_calls
    return reasoning, content, calls, complete, complete if complete < len(calls) else None


def check(text, *, reasoning="", content="", calls=(), **options):
    """Hold the split against what it should be, whole and in portions."""
    for portion in (None, 1, 2, 3, 7):
        got = split(text, portion=portion, **options)
        assert got[:2] == (reasoning, content)
        assert [(name, json.loads(arguments)) for name, arguments in got[2]] == list(calls)
        assert (got[3], got[4]) == (len(calls), None)


FINISH = (
    "<tool_call>\n<function=Finish>\n<parameter=answer>\n204\n</parameter>\n"
    "</function>\n</tool_call>"
)
FINISHED = ("Finish", {"answer": "204"})
CALL = (
    "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n<parameter=b>\n5\n</parameter>\n"
    "</function>\n</tool_call>"
)
CALLED = ("f", {"a": "x", "b": 5})


def call(**arguments):
    text = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments.items())
    return f"<tool_call>\n<function=f>\n{text}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("include_body", "True", True),
        ("include_body", "FALSE", False),
        ("n", "None", None),
        ("n", "null", None),
        ("n", "nothing", "nothing"),
        ("o", "{'a': True, 'b': [None, 'it\\'s']}", {"a": True, "b": [None, "it's"]}),
        ("o", '{"a": 1}', {"a": 1}),
        ("b", "5.0", 5),
        ("b", '"5"', 5),
        ("b", "five", "five"),
        ("a", "5", "5"),
        ("a", "", ""),
        ("a", "\n two\n\nlines \n", "\n two\n\nlines \n"),
        ("a", 'say "hi" \\n \t\x01 é', 'say "hi" \\n \t\x01 é'),
        ("undeclared", "[1, 2]", [1, 2]),
        ("undeclared", "plain", "plain"),
    ],
)
def test_case_23_arguments_have_the_declared_type(key, text, value):
    """TC-10 to TC-13, case 23"""
    check(call(**{key: text}), calls=[("f", {key: value})])


CLOSERS = ("</parameter>\n", "</function>\n", "</tool_call>")


@pytest.mark.parametrize("missing", range(8))
@pytest.mark.parametrize("again", [False, True])
def test_case_26_closing_tags_may_be_missing_in_every_combination(missing, again):
    """TC-5, case 26"""
    text = FINISH
    for bit, closer in enumerate(CLOSERS):
        if missing >> bit & 1:
            text = text.replace(closer, "")
    if again:
        text = f"{text.rstrip()}\n{CALL}"
    check(text, calls=[FINISHED, CALLED] if again else [FINISHED])


@pytest.mark.parametrize(
    ("end", "arguments"),
    [
        (0, ""),
        (5, ""),
        (12, ""),
        (20, ""),
        (30, "{"),
        (40, "{"),
        (49, '{"answer": "'),
        (50, '{"answer": "2'),
        (52, '{"answer": "204'),
        (58, '{"answer": "204\\n'),
    ],
)
def test_case_26_a_call_that_was_cut_is_never_json(end, arguments):
    """TC-6, case 26"""
    for portion in (None, 1, 5):
        got = split(FINISH[:end], portion=portion, cut=True)
        assert got[3] == 0
        assert got[1] == ""
        assert "".join(text for _, text in got[2]) == arguments


def test_a_call_that_was_cut_behind_all_its_parameters_is_complete():
    """TC-6: nothing but closing tags could have followed."""
    check(FINISH.removesuffix("</function>\n</tool_call>"), calls=[FINISHED], cut=True)
    name, arguments = split(CALL.removesuffix("\n</function>\n</tool_call>"), cut=True)[2][0]
    assert (name, arguments) == ("f", '{"a": "x", "b": 5')


def test_case_27_text_stands_before_and_between_calls():
    """TC-3, case 27"""
    check(f"I'll look.\n\n{CALL}", content="I'll look.", calls=[CALLED])
    text = f"I'll look.\n\n{CALL}\n\nAnd:\n{CALL}\n{CALL}\n"
    check(text, content="I'll look.\n\nAnd:", calls=[CALLED] * 3)
    check(text, content="I'll look.\n\nAnd:", calls=[CALLED], parallel=False)


def test_case_25_a_call_in_the_reasoning_is_a_call_and_a_quoted_one_is_not():
    """TC-7, case 25"""
    check(f"plan...\n{FINISH}\n</think>", reasoning="plan...", calls=[FINISHED], thinking=True)
    check(f"plan...\n{FINISH}", reasoning="plan...", calls=[FINISHED], thinking=True)
    for quoted in (
        "use <tool_call> here",
        "<function=f> takes a",
        "<tool_call>\n<function=h>\n</function>",
        "<tool_call>\n<function=Finish>\n<parameter=answer>\n204",
    ):
        check(f"{quoted}\n</think>\n\nso", reasoning=quoted, content="so", thinking=True)
        text = f"{quoted}\n{FINISH}\n</think>"
        check(text, reasoning=quoted, calls=[FINISHED], thinking=True)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n<function name="f">\n<parameter name="a">\nx\n</parameter>\n</function>',
        "<tool_call>\n<function=f>\n<parameter=a>x</parameter></function></tool_call>",
        "<function=f>\n<parameter=a>\nx\n</parameter>\n</function>",
        '<invoke name="f">\n<param name="a">x</param>\n</invoke>',
        '<function_calls><invoke name="f"><param name="a">x</param></invoke></function_calls>',
        '<tool_call>\n{"name": "f", "arguments": {"a": "x"}}\n</tool_call>',
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"x\\"}"}',
        "<tool_call>\n{'name': 'f', 'arguments': {'a': 'x'}\n</tool_call>",
        '<tool_call>\n<function=f>\n{"a": "x"}\n</function>\n</tool_call>',
        "<tool_call>\n<function=f\n<parameter=a\nx\n</parameter>\n</function>\n</tool_call>",
    ],
)
def test_other_spellings_are_calls(text):
    """TC-8"""
    check(text, calls=[("f", {"a": "x"})])


def test_values_hold_markup_of_their_own():
    """TC-9"""
    inner = CALL.replace("=f>", "=example>")
    for value in (
        f"Write\n{inner}\nlike that",
        "grep '</parameter>' x",
        '<function name="f">\n</function>',
        '<parameter name="a">\n1\n</parameter>',
        "see </function> and <tool_call> there",
        "a <parameter=b> b",
    ):
        check(call(a=value), calls=[("f", {"a": value})])


def test_what_is_named_twice_counts_the_last_time():
    """TC-14"""
    text = CALL.replace("=b>", "=a>")
    assert split(text)[2] == [("f", '{"a": "x", "a": "5"}')]


def test_undeclared_functions_are_delivered():
    """TC-15"""
    check(CALL.replace("=f>", "=h>"), calls=[("h", {"a": "x", "b": 5})])


def test_case_32_without_tools_no_call_is_made_and_no_tag_is_shown():
    """TC-4, case 32"""
    for text in (CALL, f"a {CALL} b"):
        got = split(text, tools=NO_TOOLS)
        assert got[2] == [] and "x" in got[1]
        assert not any(mark in got[1] for mark in ("<", ">", "function", "tool_call"))
    element = 'Use <function name="q">\n<parameter name="p">1</parameter></function>.'
    check(element, content=element, tools=NO_TOOLS)


def test_case_31_arguments_come_while_they_are_written():
    """TC-2, case 31"""
    parser = AnswerParser(False, TOOLS)
    pieces = [p for c in call(a="word " * 100) for p in parser.push(c)]
    deltas = [delta for piece in pieces for delta in piece.calls]
    assert (deltas[0].name, deltas[0].arguments) == ("f", "")
    assert all(len(delta.arguments) < 20 for delta in deltas) and len(deltas) > 400


def test_case_35_unclosed_reasoning_is_all_reasoning():
    """Case 35"""
    assert split("Okay, 2+2 is 4.", thinking=True) == ("Okay, 2+2 is 4.", "", [], 0, None)


FRAGMENTS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<function=",
    "<function=f>",
    "<function=zz>",
    "<parameter=",
    "<parameter=a>",
    "<parameter=b>",
    "<parameter=o>",
    "<parameter=n>",
    "</parameter>",
    "</function>",
    "\n",
    "\n",
    " ",
    "é",
    "\U0001f9ff",
    "x",
    "{",
    "}",
    '"',
    "'",
    "null",
    "True",
    "5",
    "\\",
    '{"name": "f", "arguments": {',
    "}}",
    '<function name="f">',
    "<invoke name='g'>",
    "<function",
    "<",
    '<parameter name="a">',
    "</invoke>",
    "<function_calls>",
    "<parameter>",
    CALL,
    CALL[:50],
    CALL[60:],
]
MARKUP = ("<tool_call>", "</tool_call>", "<function=", "<parameter=")


def check_any(text, thinking, cut, tools, parallel, portions):
    whole = split(text, thinking, tools, None, cut, parallel)
    for portion in portions:
        assert split(text, thinking, tools, portion, cut, parallel) == whole
    assert not any(mark in whole[1] for mark in MARKUP)
    for i, (_, arguments) in enumerate(whole[2]):
        if i == whole[4]:
            with pytest.raises(ValueError):
                json.loads(arguments)
        else:
            assert isinstance(json.loads(arguments), dict)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join),
    st.booleans(),
    st.booleans(),
    st.sampled_from([TOOLS, NO_TOOLS]),
    st.booleans(),
    st.integers(2, 9),
)
def test_case_55_and_88_streamed_equals_whole(text, thinking, cut, tools, parallel, portion):
    """TC-1, cases 55 and 88"""
    check_any(text, thinking, cut, tools, parallel, (1, portion))


def test_case_88_ten_thousand_mixes_are_split_without_an_error():
    """TC-1, case 88"""
    draw = random.Random(88)
    for _ in range(10_000):
        text = "".join(draw.choices(FRAGMENTS, k=draw.randint(1, 6)))
        tools = TOOLS if draw.random() < 0.7 else NO_TOOLS
        begin = draw.randint(0, 5)
        check_any(text[begin:], draw.random() < 0.5, draw.random() < 0.5, tools, True, (1,))


HEADS = (
    "",
    "<tool_call>\n<function=f>\n<parameter=a>\n",
    "<tool_call>\n<function=f>\n<parameter=o>\n{",
)
UNITS = (
    " ",
    "\n",
    "<",
    "</",
    "<tool_call>",
    "</tool_call>",
    "<function=",
    "<function=" + "a" * 190,
    '"',
    "<parameter=a>",
    "\n</parameter> ",
    "'",
    "\\",
    "{",
    "</parameter>" + " " * 50,
    "<tool_call>{",
    CALL,
)


@pytest.mark.parametrize("unit", UNITS)
def test_case_30_long_runs_of_anything_take_linear_time(unit):
    """TC-1, case 30"""
    for head in HEADS:
        for thinking in (False, True):
            began = time.process_time()
            split(head + unit * (300_000 // len(unit)), thinking, portion=4096)
            assert time.process_time() - began < 1.0


def test_case_30_single_characters_take_linear_time():
    """TC-1, case 30"""
    for unit in (" ", "<", "a"):
        began = time.process_time()
        split(HEADS[1] + unit * 50_000, portion=1)
        assert time.process_time() - began < 4.0
