"""A whole server as a program: service, engine process and HTTP, without the command line.

`python -m builders.server_program ARTIFACT PORT` with settings as JSON on standard input.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import socket
import sys
from pathlib import Path
from typing import Any

from ninfer_formats.reader import open_artifact
from ninfer_runtime.config import EngineConfig
from ninfer_runtime.server.app import create_app
from ninfer_runtime.server.engine_process.entry import EngineSetup
from ninfer_runtime.server.http_options import HttpOptions
from ninfer_runtime.server.running import serve
from ninfer_runtime.server.service import Service
from ninfer_runtime.server.service_options import ServiceOptions


async def run(artifact: Path, port: int, settings: dict[str, Any]) -> int:
    """Serve until the process is told to end or the engine is gone; return the exit status."""
    config = EngineConfig(device="cpu", **settings.get("engine", {}))
    setup = EngineSetup(functools.partial(open_artifact, artifact), config, threads=1)
    service = Service(setup, ServiceOptions(**settings.get("service", {})))
    app = create_app(service, HttpOptions(**settings.get("http", {})))
    with socket.create_server(("127.0.0.1", port)) as listener:
        return await serve(app, service, listener, 1.0)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    sys.exit(asyncio.run(run(Path(sys.argv[1]), int(sys.argv[2]), json.load(sys.stdin))))
