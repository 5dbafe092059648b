"""Items become the conversation the model had (HT-30, cases 18, 19, 77)."""

from __future__ import annotations

import httpx
import pytest

from builders.fake_service import FakeCard, FakeService
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.sealed_text import seal, unseal

PATH = "/v1/responses"
PICTURE = "data:image/png;base64,AAAA"
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'}
OTHER = {**CALL, "call_id": "c2", "name": "g", "arguments": ""}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
HI = {"role": "user", "content": "hi"}


def think(text: str) -> dict:
    content = [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": content}


def say(text: str) -> dict:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": content}


def write_call(id: str, name: str, arguments: str) -> dict:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def read_messages(http: httpx.Client, fake: FakeService, input: object, **more: object) -> list:
    answer = http.post(PATH, json={"input": input, **more})
    assert answer.status_code == 200, answer.text
    return list(fake.seen[-1].messages)


def test_a_text_is_a_turn_of_the_user_behind_the_instructions(http, fake):
    system = {"role": "system", "content": "be terse"}
    user = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    assert read_messages(http, fake, "hi", instructions="be terse") == [system, user]


def test_reasoning_text_and_calls_are_one_turn(http, fake):
    input = [HI, think("hm"), say("see"), CALL, OTHER, RESULT]
    _, turn, result = read_messages(http, fake, input)
    calls = [write_call("c1", "f", '{"a":1}'), write_call("c2", "g", "{}")]
    assert turn == {
        "role": "assistant", "reasoning_content": "hm", "content": "see", "tool_calls": calls,
    }  # fmt: skip
    assert result == {"role": "tool", "tool_call_id": "c1", "content": "42"}


def test_answers_that_follow_each_other_stay_apart(http, fake):
    messages = read_messages(http, fake, [HI, say("a"), say("b"), think("c"), say("d"), think("e")])
    assert [message.get("content") for message in messages[1:]] == ["a", "b", "d", None]
    assert [message.get("reasoning_content") for message in messages[1:]] == [None, None, "c", "e"]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": seal("hm")},
        {**think("hm"), "encrypted_content": "gAAAA", "summary": []},
    ],
)
def test_reasoning_is_read_from_whatever_has_it(http, fake, item):
    assert read_messages(http, fake, [HI, item, say("a")])[1]["reasoning_content"] == "hm"


def test_what_another_server_has_sealed_is_passed_over(http, fake):
    item = {"type": "reasoning", "id": "rs_9", "summary": [], "encrypted_content": "gAAAA"}
    assert "reasoning_content" not in read_messages(http, fake, [HI, item, say("a")])[1]
    assert unseal("ninfer1.!") is unseal("ninfer1.AAAA") is unseal(None) is None
    assert unseal(seal("ä" * 1000)) == "ä" * 1000


def test_a_call_that_was_cut_is_left_out(http, fake):
    cut = {**CALL, "arguments": '{"a', "status": "incomplete"}
    assert [m["role"] for m in read_messages(http, fake, [HI, cut, HI])] == ["user", "user"]


def test_case_18_and_19_roles_and_loops_without_a_user_arrive_in_order(http, fake):
    """Cases 18 and 19."""
    input = [
        {"role": "developer", "content": "d"}, {"role": "system", "content": "s"},
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "x"}]},
        CALL, RESULT,
    ]  # fmt: skip
    roles = [message["role"] for message in read_messages(http, fake, input)]
    assert roles == ["developer", "system", "system", "assistant", "tool"]


def test_case_77_images_are_seen_in_messages_and_in_results(http, fake):
    """Case 77."""
    parts = [
        {"type": "input_text", "text": "shot"},
        {"type": "input_image", "image_url": PICTURE, "detail": "auto"},
    ]
    image = {"type": "image_url", "image_url": {"url": PICTURE}}
    input = [{"role": "user", "content": parts}, CALL, {**RESULT, "output": parts}]
    user, _, result = read_messages(http, fake, input)
    assert user["content"] == result["content"] == [{"type": "text", "text": "shot"}, image]


def test_refusals_name_the_clients_place(http, fake):
    part = {"type": "input_image", "image_url": "http://127.0.0.1/x.png"}
    result = {**RESULT, "output": [{"type": "input_text", "text": ""}, part]}
    for input, place in (
        ([HI, {"role": "user", "content": [part]}], "input[1].content[0]"),
        ([HI, CALL, result], "input[2].output[1]"),
    ):
        error = http.post(PATH, json={"input": input, "instructions": "x"}).json()["error"]
        assert (error["param"], error["code"]) == (place, "invalid_media")
        assert place in error["message"]


@pytest.mark.parametrize(
    ("within", "place"),
    [
        ("messages", "input"),
        ("messages[0]", "instructions"),
        ("messages[1].content[0].text", "input[0].content[0]"),
        ("messages[2].tool_calls[0].function.arguments", "input[1]"),
        ("max_tokens", "max_output_tokens"),
        ("tools[0].function.parameters", "tools[1]"),
        ("reasoning_effort", "reasoning.effort"),
        ("temperature", "temperature"),
    ],
)
def test_every_place_of_the_one_form_has_the_clients_name(http, fake, within, place):
    async def refuse(request):
        raise ApiError(400, f"{within}: bad", "invalid_value", within)

    fake.prepare_chat = refuse
    user = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    body = {
        "input": [user, CALL, RESULT],
        "instructions": "x",
        "tools": [{"type": "web_search"}, {"type": "function", "name": "f"}],
    }
    for path in (PATH, f"{PATH}/input_tokens"):
        error = http.post(path, json=body).json()["error"]
        assert (error["param"], error["message"]) == (place, f"{place}: bad")


def test_case_78_images_without_vision_are_refused_with_the_flag(http, fake):
    """Case 78."""
    fake.card = FakeCard(vision=False)
    part = {"type": "input_image", "image_url": PICTURE}
    answer = http.post(PATH, json={"input": [CALL, {**RESULT, "output": [part]}]})
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("vision_disabled", "input[1].output[0]")
    assert "--vision" in error["message"]
