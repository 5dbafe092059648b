"""Messages become the conversation the model had (HT-35, HT-36, cases 17, 18, 77)."""

from __future__ import annotations

import pytest

from builders.fake_service import FakeService
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.requests import ThinkingFields
from ninfer_runtime.server.sealed_text import seal

PATH = "/v1/messages"
HI = {"role": "user", "content": "hi"}
IMAGE = {
    "type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
}  # fmt: skip
SEEN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TEXT = {"type": "text", "text": "shot"}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "42"}


def read_messages(http, fake: FakeService, messages: list, **more) -> list:
    body = {"model": "x", "messages": messages, **more}
    answer = http.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    return list(fake.seen[-1].messages)


@pytest.mark.parametrize("system", ["s", [{"type": "text", "text": "s"}]])
def test_system_text_stands_in_front(http, fake, system):
    assert read_messages(http, fake, [HI], system=system) == [
        {"role": "system", "content": "s"}, HI,
    ]  # fmt: skip


def test_case_17_several_and_late_system_texts_keep_their_order(http, fake):
    """Case 17."""
    system = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    late = {"role": "system", "content": [{"type": "text", "text": "c"}]}
    messages = read_messages(http, fake, [HI, late, HI], system=system)
    assert [message["role"] for message in messages] == [
        "system", "system", "user", "system", "user",
    ]  # fmt: skip


def test_the_clients_bill_is_not_for_the_model(http, fake):
    bill = {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=abc;"}
    rest = {"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}
    messages = read_messages(http, fake, [HI], system=[bill, rest])
    assert messages == [{"role": "system", "content": "s"}, HI]
    assert len(read_messages(http, fake, [HI], system=[rest, bill])) == 3
    assert read_messages(http, fake, [HI], system=[bill]) == [HI]


def test_thinking_text_and_calls_are_one_turn(http, fake):
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "ninfer"}, TEXT, USE]
    messages = [HI, {"role": "assistant", "content": blocks}, {"role": "user", "content": [RESULT]}]
    _, turn, result = read_messages(http, fake, messages)
    function = {"name": "f", "arguments": {"a": 1}}
    assert turn == {
        "role": "assistant", "reasoning_content": "hm", "content": [TEXT],
        "tool_calls": [{"id": "t1", "type": "function", "function": function}],
    }  # fmt: skip
    assert result == {"role": "tool", "tool_call_id": "t1", "content": "42"}


def test_thinking_that_was_omitted_comes_back_from_its_signature(http, fake):
    for block in (
        {"type": "thinking", "thinking": "", "signature": seal("hm")},
        {"type": "redacted_thinking", "data": seal("hm")},
    ):
        messages = [HI, {"role": "assistant", "content": [block, TEXT]}, HI]
        assert read_messages(http, fake, messages)[1]["reasoning_content"] == "hm"
    foreign = {"type": "redacted_thinking", "data": "EmwKAhgB"}
    messages = [HI, {"role": "assistant", "content": [foreign, TEXT]}, HI]
    assert "reasoning_content" not in read_messages(http, fake, messages)[1]


def test_results_are_messages_of_their_own(http, fake):
    blocks = [RESULT, {**RESULT, "tool_use_id": "t2"}, TEXT, IMAGE]
    messages = read_messages(http, fake, [{"role": "user", "content": blocks}])
    assert [message["role"] for message in messages] == ["tool", "tool", "user"]
    assert messages[2]["content"] == [TEXT, SEEN]


def test_case_77_images_are_seen_in_messages_and_in_results(http, fake):
    """Case 77."""
    result = {**RESULT, "content": [TEXT, IMAGE]}
    (message,) = read_messages(http, fake, [{"role": "user", "content": [result]}])
    assert message["content"] == [TEXT, SEEN]
    video = {**IMAGE, "type": "video"}
    (message,) = read_messages(http, fake, [{"role": "user", "content": [video]}])
    assert message["content"][0]["type"] == "video_url"


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        ("no file", "Error: no file"),
        (None, "Error:"),
        ([TEXT], [{"type": "text", "text": "Error: "}, TEXT]),
    ],
)
def test_a_result_that_is_an_error_says_so(http, fake, content, seen):
    result = {**RESULT, "content": content, "is_error": True}
    (message,) = read_messages(http, fake, [{"role": "user", "content": [result]}])
    assert message["content"] == seen


@pytest.mark.parametrize("content", ["The sum is (", [{"type": "text", "text": "The sum is ("}]])
def test_a_last_text_of_the_assistant_is_the_begin_of_the_answer(http, fake, content):
    messages = read_messages(http, fake, [HI, {"role": "assistant", "content": content}])
    assert messages == [HI]
    assert fake.seen[-1].prefill == "The sum is ("
    assert fake.seen[-1].thinking == ThinkingFields(False)


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}]])
def test_a_last_message_of_nothing_is_no_begin(http, fake, content):
    messages = read_messages(http, fake, [HI, {"role": "assistant", "content": content}])
    assert messages == [HI]
    assert (fake.seen[-1].prefill, fake.seen[-1].thinking) == ("", ThinkingFields())


def test_a_last_call_of_the_assistant_is_no_begin(http, fake):
    messages = read_messages(http, fake, [HI, {"role": "assistant", "content": [USE]}])
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert fake.seen[-1].prefill == ""


@pytest.mark.parametrize(
    "more",
    [
        {"thinking": {"type": "adaptive"}},
        {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
        {"tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "any"}},
    ],
)
def test_what_does_not_go_with_the_begin_of_an_answer(http, fake, more):
    messages = [HI, {"role": "assistant", "content": "a"}]
    answer = http.post(PATH, json={"model": "x", "messages": messages, **more})
    assert answer.status_code == 400
    assert "messages[1]" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("within", "place"),
    [
        ("messages[0]", "system"),
        ("messages[1].content[0]", "messages[0].content[0]"),
        ("messages[2].tool_calls[0].function", "messages[1].content[1]"),
        ("messages[3].content[1].image_url", "messages[2].content[0].content[1]"),
        ("messages[4].content[0]", "messages[2].content[1]"),
        ("stop", "stop_sequences"),
        ("thinking_budget", "thinking.budget_tokens"),
        ("reasoning_effort", "output_config.effort"),
        ("tools[0].function", "tools[1]"),
        ("max_tokens", "max_tokens"),
    ],
)
def test_every_place_of_the_one_form_has_the_clients_name(http, fake, within, place):
    async def refuse(request):
        raise ApiError(400, f"{within}: bad", "invalid_value", within)

    fake.prepare_chat = refuse
    body = {
        "model": "x",
        "system": "s",
        "messages": [
            {"role": "user", "content": [TEXT]},
            {"role": "assistant", "content": [TEXT, USE]},
            {"role": "user", "content": [{**RESULT, "content": [TEXT, IMAGE]}, TEXT]},
        ],
        "tools": [
            {"type": "web_search_20250305", "name": "web_search"},
            {"name": "f", "input_schema": {}},
        ],
    }
    for path in (PATH, f"{PATH}/count_tokens"):
        error = http.post(path, json=body).json()["error"]
        assert error == {"type": "invalid_request_error", "message": f"{place}: bad"}
