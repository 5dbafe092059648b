"""Streams are never silent for long and end with their reader (HT-10, HT-15, case 38)."""

from __future__ import annotations

import json
import socket
import time

import pytest

from builders.fake_service import FakeService, say
from builders.real_server import wait_for
from ninfer_runtime.server.events import Delta
from ninfer_runtime.server.http_options import HttpOptions

BODY = {"messages": [{"role": "user", "content": "hi"}]}


def connect(server, body: dict) -> socket.socket:
    """Return a socket that has sent a request and nothing has read from."""
    data = json.dumps(body).encode()
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(data)}\r\n\r\n"
    )
    sock.sendall(head.encode() + data)
    return sock


def test_silence_is_filled_with_comments(serve, fake: FakeService):
    fake.script = [0.25, *say("late")]
    server = serve(HttpOptions(keep_alive=0.1))
    text = server.http.post("/v1/chat/completions", json={**BODY, "stream": True}).text
    assert text.count(": keep-alive\n\n") == 2
    assert text.index(": keep-alive") < text.index("late")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("phase", ["queued", "answering"])
def test_a_client_that_goes_is_let_go_of_at_once(serve, fake: FakeService, stream, phase):
    if phase == "queued":
        fake.admission = [60.0]
    else:
        fake.script = [(0, Delta(content="a")), 60.0]
    server = serve()
    sock = connect(server, {**BODY, "stream": stream})
    assert wait_for(lambda: fake.open == 1)
    sock.close()
    begun = time.monotonic()
    assert wait_for(lambda: fake.open == 0)
    assert time.monotonic() - begun < 1
    fake.admission, fake.script = [], say("ok")
    assert server.http.post("/v1/chat/completions", json=BODY).is_success


def test_a_client_that_closes_its_half_is_gone(serve, fake: FakeService):
    fake.script = [60.0]
    sock = connect(serve(), {**BODY, "stream": True})
    assert wait_for(lambda: fake.open == 1)
    sock.shutdown(socket.SHUT_WR)
    assert wait_for(lambda: fake.open == 0)
    sock.close()


def test_a_reader_that_stops_reading_blocks_nobody(serve, fake: FakeService):
    fake.script = [(0, Delta(content="x" * 100_000)) for _ in range(100)]
    server = serve()
    sock = connect(server, {**BODY, "stream": True})
    assert wait_for(lambda: fake.open == 1)
    time.sleep(0.1)
    fake.script = say("quick")
    begun = time.monotonic()
    assert server.http.post("/v1/chat/completions", json=BODY).is_success
    assert time.monotonic() - begun < 1
    assert fake.open == 1
    sock.close()
    assert wait_for(lambda: fake.open == 0)


def test_a_body_that_never_ends_blocks_nobody(serve):
    server = serve()
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{")
    assert server.http.get("/health").is_success
    sock.close()
    assert server.http.get("/health").is_success
