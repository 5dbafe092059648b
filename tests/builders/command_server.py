"""`ninfer serve` as a user starts it: a process, its port and what it says."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import httpx

_PATIENCE = 90.0


def find_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class CommandServer:
    """`ready` waits until it answers; `log` is what it has printed."""

    def __init__(self, log: Path, *arguments: object) -> None:
        self.port, self._log = find_port(), log
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "ninfer_tools", "serve", *map(str, arguments)]
        with log.open("wb") as sink:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port)], stdout=sink, stderr=sink,
                env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=Path(__file__).parents[2],
            )  # fmt: skip
        self.http = httpx.Client(base_url=self.url, timeout=_PATIENCE, trust_env=False)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def health(self) -> httpx.Response | None:
        """Return what /health says, None while nothing listens."""
        try:
            return self.http.get("/health")
        except httpx.TransportError:
            return None

    def ready(self) -> Self:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            answer = self.health()
            if answer is not None and answer.is_success:
                return self
            time.sleep(0.05)
        raise AssertionError(f"the server is not ready: {self.log}")

    def children(self) -> list[int]:
        """Return the ids of the processes it has started."""
        pid = self.process.pid
        return [int(id) for id in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)
