"""Kept responses: bounded, shared and forgotten (HT-33)."""

from __future__ import annotations

import pytest

from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.responses.store import KeptResponse, ResponseStore, measure


def keep(store: ResponseStore, id: str, *input: dict, size: int = 1000) -> KeptResponse:
    output = [{"id": f"msg_{id}", "text": "x" * size}]
    kept = KeptResponse({"id": id, "output": output}, input)
    store.keep(kept)
    return kept


def ids(store: ResponseStore, *wanted: str) -> str:
    found = ""
    for id in wanted:
        try:
            store.find(id)
        except ApiError as error:
            assert (error.status, error.code) == (404, "response_not_found")
        else:
            found += id
    return found


def test_the_least_lately_used_goes_beyond_the_number():
    store = ResponseStore(3, 1 << 20)
    for id in "abc":
        keep(store, id)
    store.find("a")
    keep(store, "d")
    assert len(store) == 3
    assert ids(store, *"abcd") == "acd"


def test_the_least_lately_used_goes_beyond_the_bytes():
    store = ResponseStore(100, 3 * 1800)
    for id in "abcd":
        keep(store, id)
    assert ids(store, *"abcd") == "bcd"
    assert store.bytes <= 3 * 1800


def test_one_that_is_larger_than_all_room_is_not_kept():
    store = ResponseStore(100, 5000)
    keep(store, "a", size=10_000)
    assert (len(store), store.bytes) == (0, 0)


def test_items_of_a_conversation_count_once():
    store = ResponseStore(100, 1 << 20)
    picture = {"id": "msg_0", "image_url": "x" * 100_000}
    kept = keep(store, "a", picture)
    for id in "bcdefgh":
        kept = keep(store, id, *kept.items)
    assert 100_000 < store.bytes < 130_000
    for id in "abcdefg":
        store.delete(id)
    # The last one still has the whole conversation.
    assert len(store.find("h").input) == 8
    assert store.find_item("msg_0") is picture
    assert store.bytes > 100_000
    store.delete("h")
    assert (len(store), store.bytes) == (0, 0)
    assert store.find_item("msg_0") is None
    with pytest.raises(ApiError):
        store.delete("h")


def test_an_item_that_stands_twice_in_one_conversation_is_let_go_once():
    store = ResponseStore(100, 1 << 20)
    item = {"id": "msg_0", "text": "x" * 1000}
    keep(store, "a", item, item)
    keep(store, "b", item)
    store.delete("a")
    assert store.find_item("msg_0") is item
    store.delete("b")
    assert store.bytes == 0


def test_a_response_takes_the_place_of_one_of_its_id():
    store = ResponseStore(100, 1 << 20)
    keep(store, "a", {"id": "msg_0", "text": "a"})
    keep(store, "a", {"id": "msg_1", "text": "b"})
    assert store.find_item("msg_0") is None
    store.delete("a")
    assert (len(store), store.bytes) == (0, 0)


def test_an_id_that_was_given_twice_is_the_later_item():
    store = ResponseStore(100, 1 << 20)
    first, second = {"id": "msg_0", "text": "a"}, {"id": "msg_0", "text": "b"}
    keep(store, "a", first)
    keep(store, "b", second)
    assert store.find_item("msg_0") is second
    store.delete("a")
    assert store.find_item("msg_0") is second


def test_text_of_any_depth_is_measured():
    assert measure({"a": [{"b": "x" * 5000}]}) > 5000
    assert measure([0] * 100) >= 6400
