"""Responses that are kept, and those that go on from them (HT-33, HT-34)."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from builders.fake_service import FakeService, end
from ninfer_runtime.server.app import create_app
from ninfer_runtime.server.events import TOOL_CALLS, CallDelta, Delta
from ninfer_runtime.server.http_options import HttpOptions

PATH = "/v1/responses"
F = {"type": "function", "name": "f"}


def ask(http, input="hi", **fields) -> dict:
    answer = http.post(PATH, json={"input": input, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_response_is_read_again_until_it_is_deleted(http):
    answer = ask(http)
    address = f"{PATH}/{answer['id']}"
    assert http.get(address).json() == answer
    assert http.get(address, params={"include[]": "x", "stream": "false"}).json() == answer
    assert http.delete(address).json() == {
        "id": answer["id"], "object": "response", "deleted": True,
    }  # fmt: skip
    for method, path in (
        ("GET", address), ("DELETE", address), ("GET", f"{address}/input_items"),
        ("POST", f"{address}/cancel"),
    ):  # fmt: skip
        gone = http.request(method, path)
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "response_not_found")


def test_one_that_is_not_to_be_stored_is_not(http):
    answer = ask(http, store=False)
    assert answer["store"] is False
    assert http.get(f"{PATH}/{answer['id']}").status_code == 404


def test_a_conversation_goes_on_with_its_reasoning_and_calls(http, fake: FakeService):
    fake.script = [
        (0, Delta(reasoning="hm")), (0, Delta(content="see")),
        (0, Delta(calls=(CallDelta(0, "call_1", "f", "{}"),))), (0, end(TOOL_CALLS)),
    ]  # fmt: skip
    first = ask(http, tools=[F], instructions="first")
    result = {"type": "function_call_output", "call_id": "call_1", "output": "42"}
    second = ask(http, [result], previous_response_id=first["id"], instructions="second")
    assert second["previous_response_id"] == first["id"]
    http.delete(f"{PATH}/{first['id']}")
    ask(http, "on", previous_response_id=second["id"])
    whole = fake.seen[-1].messages
    assert [message["role"] for message in whole] == [
        "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    function = {"name": "f", "arguments": "{}"}
    assert whole[1] == {
        "role": "assistant", "reasoning_content": "hm", "content": "see",
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }  # fmt: skip
    # Instructions are those of one response.
    assert fake.seen[1].messages[0] == {"role": "system", "content": "second"}
    assert fake.seen[1].messages[1]["role"] == "user"


def test_going_on_equals_sending_everything_again(http, fake: FakeService):
    fake.script = [(0, Delta(reasoning="hm")), (0, Delta(content="see")), (0, end())]
    first = ask(http, "one")
    ask(http, "two", previous_response_id=first["id"])
    user = {"role": "user", "content": "one"}
    ask(http, [user, *first["output"], {"role": "user", "content": "two"}], store=False)
    assert fake.seen[-1].messages == fake.seen[-2].messages


def test_going_on_without_input_is_possible_only_from_somewhere(http, fake: FakeService):
    first = ask(http)
    answer = http.post(PATH, json={"previous_response_id": first["id"]})
    assert answer.status_code == 200
    assert [m["role"] for m in fake.seen[-1].messages] == ["user", "assistant"]


def test_a_reference_is_the_item_itself(http, fake: FakeService):
    message = ask(http)["output"][0]
    ask(http, [{"role": "user", "content": "hi"}, {"type": "item_reference", "id": message["id"]}])
    assert fake.seen[-1].messages[1] == {"role": "assistant", "content": "Hello"}


def test_input_is_listed_in_pages(http):
    first = ask(http, [{"role": "user", "content": str(i)} for i in range(3)])
    second = ask(http, "last", previous_response_id=first["id"])
    address = f"{PATH}/{second['id']}/input_items"

    def read(**params) -> tuple[str, bool]:
        page = http.get(address, params=params).json()
        assert page["object"] == "list"
        if page["data"]:
            assert page["first_id"] == page["data"][0]["id"]
            assert page["last_id"] == page["data"][-1]["id"]
        texts = [item["content"][0]["text"] for item in page["data"]]
        return ",".join(texts), page["has_more"]

    ids = [item["id"] for item in http.get(address, params={"order": "asc"}).json()["data"]]
    assert read() == ("last,Hello,2,1,0", False)
    assert read(order="asc") == ("0,1,2,Hello,last", False)
    assert read(order="asc", limit=2) == ("0,1", True)
    assert read(order="asc", limit=2, after=ids[1]) == ("2,Hello", True)
    assert read(order="asc", after=ids[0], before=ids[3]) == ("1,2", False)
    assert read(after=ids[0]) == ("", False)


@pytest.mark.parametrize(
    ("path", "params", "status", "param"),
    [
        ("", {"stream": "true"}, 400, "stream"),
        ("", {"foo": "1"}, 400, "foo"),
        ("/input_items", {"limit": "0"}, 400, "limit"),
        ("/input_items", {"limit": "²"}, 400, "limit"),
        ("/input_items", {"limit": "101"}, 400, "limit"),
        ("/input_items", {"order": "up"}, 400, "order"),
        ("/input_items", {"after": "x"}, 404, "after"),
        ("/input_items", {"foo": "1"}, 400, "foo"),
    ],
)
def test_parameters_that_are_none_are_refused_by_name(http, path, params, status, param):
    answer = http.get(f"{PATH}/{ask(http)['id']}{path}", params=params)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


def test_nothing_runs_in_the_background(http):
    answer = http.post(f"{PATH}/{ask(http)['id']}/cancel")
    assert answer.status_code == 400
    assert "background" in answer.json()["error"]["message"]


def test_room_is_what_the_options_say(fake: FakeService):
    with TestClient(create_app(fake, HttpOptions(response_records=2))) as http:
        answers = [ask(http)["id"] for _ in range(3)]
        found = [http.get(f"{PATH}/{id}").status_code for id in answers]
    assert found == [404, 200, 200]


def test_tokens_of_an_input_are_counted_and_nothing_is_answered(http, fake: FakeService):
    answer = http.post(f"{PATH}/input_tokens", json={"input": "hi", "instructions": "x"})
    assert answer.json() == {"object": "response.input_tokens", "input_tokens": 7}
    assert (fake.open, fake.seen[0].counted) == (0, True)
