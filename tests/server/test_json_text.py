"""JSON is read strictly (HT-4)."""

from __future__ import annotations

import json
import threading
import time

import pytest

from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.bodies import json_text
from ninfer_runtime.server.bodies.json_text import DEPTH, parse_json

REFUSED = {
    b"": "empty",
    b" \n": "empty",
    b"{": "not valid JSON",
    b"\xff{}": "not UTF-8: byte 0",
    b"\xef\xbb\xbf{}": "not valid JSON",
    b'{"a":1,"a":2}': "'a' stands twice",
    b'{"b":{"a":1,"c":2,"a":1}}': "'a' stands twice",
    b'{"a":NaN}': "NaN is not JSON",
    b'{"a":-Infinity}': "-Infinity is not JSON",
    b'{"a":1e999}': "1e999 is out of range",
    b"[" * 200 + b"]" * 200: "nested too deeply",
    b"[" * 1_000_000: "nested too deeply",
    b'{"a":' * 1_000_000: "nested too deeply",
    b"1" * 10_000: "not valid JSON",
    b"{'a':1}": "not valid JSON",
    b'{"a":1} x': "not valid JSON",
}


@pytest.mark.parametrize("data", REFUSED, ids=lambda data: data[:20].hex() or "nothing")
def test_what_readers_could_understand_differently_is_refused(data):
    with pytest.raises(ApiError) as caught:
        parse_json(data)
    assert caught.value.status == 400
    assert REFUSED[data] in caught.value.message
    assert len(caught.value.message) < 300


def test_the_deepest_nesting_is_read_and_one_more_is_not():
    deepest = b"[" * DEPTH + b"]" * DEPTH
    assert parse_json(deepest)
    with pytest.raises(ApiError, match="nested"):
        parse_json(b"[" + deepest + b"]")


def test_many_brackets_side_by_side_are_not_deep():
    assert parse_json(b"[" + b",".join([b"{}"] * 5000) + b"]") == [{}] * 5000


def test_halves_of_surrogate_pairs_become_replacement_characters():
    assert parse_json(rb'{"a\ud83d":["x\udc00y","\ud83d\ude00"]}') == {"a�": ["x�y", "😀"]}


def test_order_of_members_stays():
    assert list(parse_json(b'{"z":1,"a":2}')) == ["z", "a"]


@pytest.mark.parametrize("data", [data for data in REFUSED if len(data) < 2_000_000])
def test_a_large_text_is_read_as_strictly(data, monkeypatch):
    """HT-4: whatever the size is from which on it is read stepwise."""
    with pytest.raises(ApiError) as small:
        parse_json(data)
    monkeypatch.setattr(json_text, "LARGE", -1)
    with pytest.raises(ApiError) as large:
        parse_json(data)
    assert large.value.message == small.value.message
    value = {"a": [1, -2.5, True, None, "é\n", {}, []], "b": {"c": "\U0001f600"}}
    assert parse_json(json.dumps(value).encode()) == value


def test_a_large_text_lets_other_threads_run():
    """HT-4: numbers without end stall nobody else for longer than 100 ms."""
    data = b"[" + b"1," * (json_text.LARGE // 2) + b"1]"
    reading = threading.Thread(target=parse_json, args=(data,))
    gaps, before = [], time.perf_counter()
    reading.start()
    while reading.is_alive():
        time.sleep(0.001)
        now = time.perf_counter()
        gaps.append(now - before)
        before = now
    assert len(gaps) > 20 and sorted(gaps)[-3] < 0.1
