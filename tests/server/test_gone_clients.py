"""Clients of every dialect that close their connection are let go at once (HT-15)."""

from __future__ import annotations

import json
import socket

import pytest

from builders.fake_service import FakeService, say
from builders.real_server import wait_for
from ninfer_runtime.server.app import create_app
from tests.server.conftest import LiveServer

TALK = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/responses", {"input": "hi"}), ("/v1/messages", {"model": "x", **TALK})],
)
def test_a_client_that_goes_cancels_its_answer(fake: FakeService, path, body):
    app = create_app(fake)
    server = LiveServer(app)
    try:
        for fake.admission, fake.script in (([5.0], say("a")), ([], [*say("a")[:1], 5.0])):
            for stream in (True, False):
                leave_early(server.port, path, {**body, "stream": stream}, fake)
                assert wait_for(lambda: fake.open == 0, 2)
    finally:
        server.stop()
    # What was given up is not kept.
    assert len(app.state.responses) == 0


def leave_early(port: int, path: str, body: dict, fake: FakeService) -> None:
    """Send a request and close the connection as soon as it is under way."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        sock.sendall(head.encode() + data)
        assert wait_for(lambda: fake.open == 1)
