"""Bodies are refused by size and type before anything looks into them (HT-4)."""

from __future__ import annotations

import json
import socket

import httpx
import pytest

from builders.fake_service import FakeService
from ninfer_runtime.server.http_options import HttpOptions

PATH = "/v1/chat/completions"
SMALL = HttpOptions(request_bytes=1000)
HI = {"messages": [{"role": "user", "content": "hi"}]}


def body_of(size: int) -> bytes:
    """Return a good body of so many bytes."""
    empty = len(json.dumps({"messages": [{"role": "user", "content": ""}]}))
    text = "x" * (size - empty)
    return json.dumps({"messages": [{"role": "user", "content": text}]}).encode()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("size", "status"), [(1000, 200), (1001, 413), (3_000_000, 413)])
def test_the_limit_is_exact_however_the_body_comes(serve, fake, chunked, size, status):
    data = body_of(size)
    content = iter([data[:500], data[500:]]) if chunked else data
    headers = {"content-type": "application/json"}
    answer = serve(SMALL).http.post(PATH, content=content, headers=headers)
    assert answer.status_code == status
    if status == 413:
        assert answer.json()["error"]["code"] == "request_too_large"
        assert "1000 bytes" in answer.json()["error"]["message"]
        assert not fake.seen


def test_a_body_that_only_says_it_is_large_is_refused_unread(serve):
    server = serve(SMALL)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock:
        head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n"
        sock.sendall(head.encode())
        assert sock.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("application/vnd.x+json", 200),
        (None, 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
    ],
)
def test_only_json_is_read(http: httpx.Client, kind, status):
    headers = {} if kind is None else {"content-type": kind}
    answer = http.post(PATH, content=json.dumps(HI).encode(), headers=headers)
    assert answer.status_code == status
    if status == 415:
        assert answer.json()["error"]["code"] == "unsupported_media_type"


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"5", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000],
)
@pytest.mark.parametrize("path", [PATH, "/v1/completions", "/tokenize", "/detokenize"])
def test_what_is_no_json_object_is_a_400(http: httpx.Client, path, data):
    answer = http.post(path, content=data, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "request body" in answer.json()["error"]["message"]


def test_case_30_two_hundred_tools_with_deep_schemas_pass(http: httpx.Client, fake: FakeService):
    """Case 30: works, or 400 with a limit."""

    def schema(levels: int) -> dict:
        inner = {"type": "string"} if levels == 0 else schema(levels - 1)
        return {"type": "object", "properties": {"a": inner}}

    def tools(levels: int) -> list[dict]:
        about = {"description": "x" * 2048, "parameters": schema(levels)}
        return [{"type": "function", "function": {"name": f"f{i}", **about}} for i in range(200)]

    assert http.post(PATH, json={**HI, "tools": tools(50)}).status_code == 200
    assert len(fake.seen[0].tools) == 200
    answer = http.post(PATH, json={**HI, "tools": tools(100)})
    assert (answer.status_code, "128 levels" in answer.text) == (400, True)
