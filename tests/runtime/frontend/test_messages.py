"""Laws of what templates are given."""

from __future__ import annotations

import pytest

from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.messages import list_media, prepare_messages

USER = {"role": "user", "content": "hi"}


def calling(arguments: str) -> dict[str, object]:
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "tool_calls": [call]}


def test_keys_without_a_value_are_left_out_and_reasoning_has_one_name():
    """FE-5"""
    answer = {"role": "assistant", "content": None, "reasoning": "r"}
    _, message = prepare_messages([USER, answer])
    assert message == {
        "role": "assistant", "reasoning": "r", "thinking": "r", "reasoning_content": "r"
    }  # fmt: skip


@pytest.mark.parametrize("wrap", [lambda call: call, lambda call: {"function": call}])
@pytest.mark.parametrize(("text", "value"), [('{"a": [1]}', {"a": [1]}), ("", {}), (" ", {})])
def test_arguments_of_calls_are_parsed(wrap, text, value):
    """FE-5"""
    calls = [wrap({"name": "f", "arguments": text})]
    _, message = prepare_messages([USER, {"role": "assistant", "tool_calls": calls}])
    assert message["tool_calls"] == [wrap({"name": "f", "arguments": value})]


def test_files_do_not_reach_the_template():
    parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 99}}]
    (message,) = prepare_messages([{"role": "user", "content": parts}])
    assert message["content"] == [{"type": "image_url", "image_url": "file"}]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "there are no messages"),
        (["hi"], "messages[0]: message is not an object"),
        ([{"content": "x"}], "messages[0]: message has no role"),
        ([{"role": "user", "content": 5}], "content is neither text nor a list"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]: content part"),
        ([{"role": "assistant", "tool_calls": {}}], "tool_calls is not a list"),
        ([calling("so")], "messages[0].tool_calls[0]: arguments are not JSON"),
        ([calling('{"a": 1} {')], "messages[0].tool_calls[0]: arguments are not JSON"),
        ([calling("[1]")], "tool_calls[0]: arguments are not a JSON object"),
        ([{"role": "assistant", "tool_calls": [{}]}], "tool_calls[0]: call has no name"),
        ([{"role": "assistant", "function_call": "f"}], "function_call: function_call is not"),
        ([{"role": "assistant", "content": "x", "thinking": {}}], "messages[0]: reasoning is not"),
        ([USER, {"role": "critic"}], "messages[1].role: message has an unknown role"),
        ([{"role": "user", "content": [{"type": "audio"}]}], "messages[0].content[0]: content"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]: content"),
        ([{"role": "developer", "content": [{"type": "image"}]}], "developer message takes text"),
        ([{"role": "system", "content": "x"}], "messages: need at least one user message"),
    ],
)
def test_what_is_not_a_message_is_named(messages, text):
    with pytest.raises(RequestError) as caught:
        prepare_messages(messages)
    assert text in str(caught.value)


def test_media_are_listed_in_order_with_their_source():
    content = [
        {"type": "image", "image": "a.png"},
        {"type": "text", "text": "and"},
        {"type": "video"},
        {"image_url": {"url": "data:x"}},
    ]
    parts = list_media([{"role": "user", "content": "x"}, {"role": "user", "content": content}])
    assert [(part.kind, part.source) for part in parts] == [
        ("image", "a.png"), ("video", None), ("image", "data:x")
    ]  # fmt: skip
    assert parts[1].where == "messages[1].content[2]"


@pytest.mark.parametrize(
    ("roles", "text"),
    [
        (["system", "system", "user"], "a\n\nb"),
        (["system", "user", "assistant", "system", "user"], "a\n\nd"),
        (["developer", "user"], "a"),
        (["user", "developer", "system"], "b\n\nc"),
    ],
)
def test_case_17_and_18_system_texts_stand_first_in_their_order(roles, text):
    """FE-25, cases 17 and 18"""
    messages = [{"role": role, "content": "abcde"[i]} for i, role in enumerate(roles)]
    first, *talk = prepare_messages(messages)
    assert first == {"role": "system", "content": text}
    asked = [message for message in messages if message["role"] not in ("system", "developer")]
    assert talk == asked


CALL = calling('{"a": 1}')
RESULT = {"role": "tool", "tool_call_id": "c", "content": "ok"}
WRAPPED = {"role": "user", "content": "<tool_response>\nok\n</tool_response>\n"}


@pytest.mark.parametrize("talk", [[CALL, RESULT], [WRAPPED], [{"role": "assistant"}]])
def test_case_19_a_talk_without_a_question_begins_with_an_empty_one(talk):
    """FE-26, case 19"""
    system = {"role": "system", "content": "s"}
    first, second, *rest = prepare_messages([system, *talk])
    assert (first, second) == (system, {"role": "user", "content": ""})
    assert [message["role"] for message in rest] == [message["role"] for message in talk]
    assert prepare_messages([USER, *talk])[0] == USER


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "x', {"a": "x"}),
        ('{"a": "x", "b": "y\\', {"a": "x", "b": "y"}),
        ('{"a": [1, {"b": "', {"a": [1, {"b": ""}]}),
        ('{"a": 1, "b": tr', {"a": 1}),
        ('{"a": 1, "b"', {"a": 1}),
        ('{"a', {}),
        ("{", {}),
    ],
)
def test_arguments_that_were_cut_are_completed(text, value):
    """FE-27"""
    _, message = prepare_messages([USER, calling(text)])
    assert message["tool_calls"][0]["function"]["arguments"] == value


def test_older_and_other_forms_become_the_one():
    """FE-5, FE-27"""
    answer = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "refusal", "refusal": "no"}],
        "function_call": {"name": "f", "arguments": '{"a": 1}'},
    }
    result = {"role": "function", "name": "f", "content": [{"type": "text", "text": "ok"}]}
    _, said, got = prepare_messages([USER, answer, result])
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    assert (said["content"], said["reasoning_content"], said["tool_calls"]) == ("no", "hm", [call])
    assert (got["role"], got["content"]) == ("tool", "ok")


def test_case_21_an_answer_that_speaks_of_the_mark_keeps_its_first_half():
    """FE-28, case 21"""
    _, plain, inline = prepare_messages(
        [
            USER,
            {"role": "assistant", "content": "a </think> b"},
            {"role": "assistant", "content": "<think>\na\n</think>\n\nb"},
        ]
    )
    assert (plain["content"], plain["reasoning_content"]) == ("a </think> b", "")
    assert "reasoning_content" not in inline


def test_images_of_tool_results_stay_in_their_place():
    """FE-25, case 77"""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    result = {**RESULT, "content": [{"type": "text", "text": "shot"}, picture]}
    *_, got = prepare_messages([USER, CALL, result])
    assert got["content"] == [
        {"type": "text", "text": "shot"}, {"type": "image_url", "image_url": "file"}
    ]  # fmt: skip
    (part,) = list_media([USER, CALL, result])
    assert (part.where, part.source) == ("messages[2].content[1]", "data:image/png;base64,AA")
