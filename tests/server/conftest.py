"""Servers of tests: a scripted one inside the test's own process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from builders.fake_service import FakeService
from builders.real_server import RealServer
from builders.tiny_models import convert_model
from ninfer_runtime.server.app import create_app
from ninfer_runtime.server.http_options import HttpOptions
from ninfer_tools.demo.cache import locate_demo


class LiveServer:
    """An application behind a real socket on a free port, in a thread."""

    def __init__(self, app: Any) -> None:
        config = uvicorn.Config(app, port=0, log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve()))
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the server has not started"
            threading.Event().wait(0.002)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=10, trust_env=False)

    def stop(self) -> None:
        self.http.close()
        self._server.should_exit = True
        self._thread.join()


@pytest.fixture(scope="session")
def demo_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo checkpoint as an artifact; not to be changed."""
    folder = tmp_path_factory.mktemp("demo")
    return convert_model(locate_demo(home=folder), folder / "demo.ninfer").path


@pytest.fixture(scope="session")
def server(demo_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server process with the demo model, two lanes and two places to wait."""
    log = tmp_path_factory.mktemp("server") / "log"
    engine = {"max_context": 2048, "kv_capacity": 4096, "lanes": 2, "speculator": "mtp"}
    engine |= {"prefix_reuse": True, "host_cache_mib": 64}
    service = {"model_id": "demo", "max_pending": 2}
    with RealServer(demo_file, log, engine=engine, service=service) as found:
        yield found


@pytest.fixture
def fake() -> FakeService:
    return FakeService()


@pytest.fixture
def serve(fake: FakeService) -> Iterator[Callable[..., LiveServer]]:
    servers: list[LiveServer] = []

    def start(options: HttpOptions | None = None, **more: Any) -> LiveServer:
        servers.append(LiveServer(create_app(fake, options, **more)))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def http(serve: Callable[..., LiveServer]) -> httpx.Client:
    """A client of a server with the usual options."""
    return serve().http
