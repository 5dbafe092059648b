"""A whole server as a process of its own, and clients that behave badly."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import httpx

_TESTS = Path(__file__).parents[1]
_PATIENCE = 90.0


class RealServer:
    """`python -m builders.server_program` on a free port; ready when the constructor returns."""

    def __init__(self, artifact: Path, log: Path, **settings: Any) -> None:
        self.port, self.log = _find_port(), log
        self.url = f"http://127.0.0.1:{self.port}"
        folders = [_TESTS, *sys.path]
        environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, folders)),
        }  # fmt: skip
        command = [sys.executable, "-m", "builders.server_program", artifact, str(self.port)]
        with log.open("wb") as sink:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stderr=sink, env=environment
            )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(settings).encode())
        self.process.stdin.close()
        self.http = httpx.Client(base_url=self.url, timeout=_PATIENCE, trust_env=False)
        self.while_loading: list[httpx.Response] = []
        self._wait_ready()

    def _wait_ready(self) -> None:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                answer = self.http.get("/health")
            except httpx.TransportError:
                time.sleep(0.05)
                continue
            if answer.is_success:
                return
            self.while_loading += [answer, self.http.get("/v1/models")]
            time.sleep(0.1)
        raise AssertionError(f"the server is not ready: {self.log.read_text()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(20)

    def chat(self, text: str = "What is 2+2?", **fields: Any) -> httpx.Response:
        """Ask greedily."""
        messages = [{"role": "user", "content": text}]
        body = {"messages": messages, "temperature": 0, **fields}
        return self.http.post("/v1/chat/completions", json=body)

    def busy(self) -> int:
        """Return how many lanes work."""
        return sum(slot["is_processing"] for slot in self.http.get("/slots").json())

    def send(self, **fields: Any) -> socket.socket:
        """Return a socket that has sent a chat request and read nothing of the answer."""
        data = json.dumps({"messages": [{"role": "user", "content": "hi"}], **fields}).encode()
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\n\r\n"
        )
        sock.sendall(head.encode() + data)
        return sock


def wait_for(condition: Any, seconds: float = 10.0) -> bool:
    """Return whether `condition` came true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def _find_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
