"""The whole server as a supervisor sees it (SV-1, SV-2, SV-4)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

PROGRAM = Path(__file__).parents[1] / "builders/served_demo.py"
BODY = {
    "messages": [{"role": "user", "content": "hi"}], "max_tokens": 400, "ignore_eos": True,
    "enable_thinking": False, "stream": True,
}  # fmt: skip


class Served:
    """A server in a process of its own; `streams` are the lines its clients got."""

    def __init__(self, *arguments: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, PROGRAM, *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{int(self.process.stdout.readline())}", timeout=60
        )
        self.streams: list[list[str]] = []
        self._threads: list[threading.Thread] = []

    def wait_until_ready(self) -> list[dict[str, Any]]:
        """Return what /health said before."""
        said = []
        while (answer := self.http.get("/health")).status_code != 200:
            said.append(answer.json())
            time.sleep(0.02)
        return said

    def stream(self) -> None:
        """Open a stream; return once it says something."""
        lines: list[str] = []
        begun = threading.Event()

        def read() -> None:
            try:
                with self.http.stream("POST", "/v1/chat/completions", json=BODY) as answer:
                    for line in answer.iter_lines():
                        lines.append(line)
                        if len([one for one in lines if one.startswith("data")]) > 1:
                            begun.set()
            except httpx.HTTPError:
                pass
            begun.set()

        self.streams.append(lines)
        self._threads.append(threading.Thread(target=read))
        self._threads[-1].start()
        assert begun.wait(60)

    def wait(self) -> int:
        status = self.process.wait(30)
        for thread in self._threads:
            thread.join(10)
        return status


@pytest.fixture
def served(demo_file: Path) -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def start(*arguments: Any) -> Served:
        started.append(Served(demo_file, *arguments))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()
        one.http.close()


def test_a_stop_ends_streams_and_the_server_within_its_limit(served):
    """SV-1, SV-4: the port answers while weights load; SIGTERM with two streams open."""
    server = served()
    assert server.http.get("/v1/models").json()["error"]["code"] == "model_loading"
    said = server.wait_until_ready()
    assert {one["status"] for one in said} <= {"loading"}
    for _ in range(2):
        server.stream()
    assert server.http.get("/health").status_code == 200
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0 and time.monotonic() - began < 8
    for lines in server.streams:
        last = json.loads([line for line in lines if line.startswith("data: {")][-1][6:])
        assert "error" in last or last["choices"][0]["finish_reason"] is not None


def test_a_stop_does_not_wait_for_weights(served):
    """SV-4: there is nothing to finish."""
    server = served()
    assert server.http.get("/health").json()["status"] == "loading"
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0 and time.monotonic() - began < 5


def test_a_second_signal_does_not_wait(served):
    """SV-4."""
    server = served()
    server.wait_until_ready()
    server.stream()
    began = time.monotonic()
    for _ in range(2):
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    assert server.wait() in (0, 1) and time.monotonic() - began < 5


def test_a_failed_step_ends_the_server(served):
    """SV-2: an error event in the stream, and a status that is not 0."""
    server = served("fail_in_step")
    server.wait_until_ready()
    server.stream()
    assert server.wait() == 1
    events = [line for line in server.streams[0] if line.startswith("data: {")]
    assert "illegal memory access" in json.loads(events[-1][6:])["error"]["message"]
    assert "data: [DONE]" not in server.streams[0]


def test_wrong_usage_ends_the_server_with_its_own_status(served):
    """SV-1."""
    server = served("fail_at_start")
    assert server.wait() == 2
    assert "--max-context is out of range" in server.process.stderr.read()
