"""Laws of what templates are given."""

from __future__ import annotations

import pytest

from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.messages import list_media, prepare_messages


def test_keys_without_a_value_are_left_out_and_reasoning_has_one_name():
    """FE-5"""
    (message,) = prepare_messages([{"role": "assistant", "content": None, "reasoning": "r"}])
    assert message == {
        "role": "assistant", "reasoning": "r", "thinking": "r", "reasoning_content": "r"
    }  # fmt: skip


@pytest.mark.parametrize("wrap", [lambda call: call, lambda call: {"function": call}])
@pytest.mark.parametrize(("text", "value"), [('{"a": [1]}', {"a": [1]}), ("", {}), (" ", {})])
def test_arguments_of_calls_are_parsed(wrap, text, value):
    """FE-5"""
    calls = [wrap({"name": "f", "arguments": text})]
    (message,) = prepare_messages([{"role": "assistant", "tool_calls": calls}])
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
        ([{"role": "assistant", "tool_calls": [{"arguments": "{"}]}], "tool_calls[0]: arguments"),
        ([{"role": "assistant", "tool_calls": [{"arguments": "[1]"}]}], "not a JSON object"),
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
