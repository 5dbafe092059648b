"""One line per request, without texts and keys (HT-17, case 72)."""

from __future__ import annotations

import json
import logging

import pytest
import zstandard

from builders.fake_service import FakeService, end, say
from builders.real_server import wait_for
from ninfer_runtime.errors import StartupError
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.events import LENGTH
from ninfer_runtime.server.http_options import HttpOptions
from ninfer_runtime.server.log_file import JsonLines
from tests.server.test_sse import connect

SECRET = "nobody may read this"
BODY = {"messages": [{"role": "user", "content": SECRET}]}
PATH = "/v1/chat/completions"


def read_lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_request_leaves_a_line_with_what_was_done(serve, fake: FakeService, tmp_path, caplog):
    path = tmp_path / "requests.jsonl"
    http = serve(HttpOptions(keys=("k-123",), request_log=path)).http
    http.headers["x-api-key"] = "k-123"
    caplog.set_level(logging.INFO, "ninfer.requests")
    fake.script = [*say(SECRET)[:1], (0, end(LENGTH, completion=5))]
    asked = {**BODY, "reasoning_effort": "high", "thinking_budget": 40}
    http.post(PATH, json={**asked, "stream": True}, headers={"x-request-id": "first"})
    http.post(PATH, json={**BODY, SECRET: 1})
    http.post(PATH, json=BODY, headers={"x-api-key": "wrong"})
    fake.refusal = ApiError(429, "full", "server_overloaded")
    http.post(PATH, json=BODY)
    http.get("/v1/models")
    first, unknown, unkeyed, full = read_lines(path)
    assert first["request_id"] == "first"
    assert (first["status"], first["path"], first["stream"]) == (200, PATH, True)
    assert (first["prompt_tokens"], first["cached_tokens"]) == (7, 2)
    assert (first["reuse"], first["first_differing_position"]) == ("continuation", 5)
    assert (first["thinking"], first["effort"], first["thinking_budget"]) == (True, "xhigh", 40)
    assert (first["completion_tokens"], first["reasoning_tokens"]) == (5, 1)
    assert (first["drafted_tokens"], first["accepted_tokens"], first["acceptance"]) == (4, 3, 0.75)
    assert first["finish"] == "length"
    assert first["seconds"]["queued"] == 0.25
    assert (first["seconds"]["prefill"], first["seconds"]["decode"]) == (0.5, 0.1)
    assert first["seconds"]["total"] >= first["seconds"]["first_token"] > 0
    assert (unknown["status"], unknown["error"]) == (400, "unknown_parameter")
    assert (unkeyed["status"], unkeyed["error"]) == (401, "invalid_api_key")
    assert (full["status"], full["error"]) == (429, "server_overloaded")
    human = [record.getMessage() for record in caplog.records]
    assert len(human) == 4
    assert "prompt 7, cached 2 (continuation), differs at 5" in human[0]
    assert "thinking xhigh, budget 40" in human[0]
    assert "answer 5, reasoning 1, 40.0 tok/s, accepted 75%" in human[0]
    for text in (path.read_text(), *human):
        assert SECRET not in text
        assert "k-123" not in text


def test_one_request_is_one_line_whatever_its_path_spells(serve, caplog):
    caplog.set_level(logging.INFO, "ninfer.requests")
    serve().http.post("/a%0Ab%1B[31m", json={})
    (record,) = caplog.records
    assert "/a?b?[31m" in record.getMessage()


def test_case_38_a_client_that_went_is_said_to_have(serve, fake: FakeService, tmp_path):
    """Case 38: log says cancelled."""
    path = tmp_path / "requests.jsonl"
    fake.script = [*say("a")[:1], 60.0]
    for stream in (True, False):
        sock = connect(serve(HttpOptions(request_log=path)), {**BODY, "stream": stream})
        assert wait_for(lambda: fake.open == 1)
        sock.close()
        assert wait_for(lambda: fake.open == 0)
    assert wait_for(lambda: len(read_lines(path)) == 2)
    assert [line["finish"] for line in read_lines(path)] == ["cancelled"] * 2


def test_full_files_are_compressed_and_the_oldest_goes(tmp_path):
    path = tmp_path / "log.jsonl"
    lines = JsonLines(path, most_bytes=100, keep=2)
    for number in range(8):
        lines.write({"number": number, "pad": "x" * 40})
    lines.close()
    kept = {}
    for name in ("log.jsonl.1.zst", "log.jsonl.2.zst"):
        data = zstandard.decompress((tmp_path / name).read_bytes(), 10_000)
        kept[name] = [json.loads(line)["number"] for line in data.splitlines()]
    assert kept == {"log.jsonl.1.zst": [6, 7], "log.jsonl.2.zst": [4, 5]}
    assert {file.name for file in tmp_path.iterdir()} == {"log.jsonl", *kept}


def test_a_log_goes_on_where_it_was(tmp_path):
    path = tmp_path / "log.jsonl"
    for number in range(2):
        lines = JsonLines(path, most_bytes=0, keep=1)
        lines.write({"number": number})
        lines.close()
    assert [line["number"] for line in read_lines(path)] == [0, 1]


def test_a_log_that_cannot_be_opened_stops_the_start(tmp_path):
    with pytest.raises(StartupError, match="cannot be opened"):
        JsonLines(tmp_path / "missing" / "log.jsonl", 0, 0)


def test_a_full_disk_ends_no_request(tmp_path, caplog):
    with_log = JsonLines(tmp_path / "log.jsonl", 0, 0)
    with_log.close()
    with_log.write({"number": 1})
    assert "request log" in caplog.text
