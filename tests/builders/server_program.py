"""A whole server as a program: service, engine process and HTTP, without the command line.

`python -m builders.server_program ARTIFACT PORT` with settings as JSON on standard input.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import sys
from pathlib import Path
from typing import Any

import uvicorn

from ninfer_formats.reader import open_artifact
from ninfer_runtime.config import EngineConfig
from ninfer_runtime.server.app import create_app
from ninfer_runtime.server.engine_process.entry import EngineSetup
from ninfer_runtime.server.http_options import HttpOptions
from ninfer_runtime.server.service import Service
from ninfer_runtime.server.service_options import ServiceOptions


async def serve(artifact: Path, port: int, settings: dict[str, Any]) -> None:
    """Serve until the process is told to end or the engine is gone."""
    config = EngineConfig(device="cpu", **settings.get("engine", {}))
    setup = EngineSetup(functools.partial(open_artifact, artifact), config, threads=1)
    service = Service(setup, ServiceOptions(**settings.get("service", {})))
    app = create_app(service, HttpOptions(**settings.get("http", {})))
    server = uvicorn.Server(
        uvicorn.Config(app, port=port, log_config=None, access_log=False, lifespan="off")
    )
    await service.open()
    serving = asyncio.create_task(server.serve())
    gone = asyncio.create_task(service.gone.wait())
    await asyncio.wait({serving, gone}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    await service.close(1.0)
    if service.failure is not None or service.status[0] == "failed":
        sys.exit(1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), json.load(sys.stdin)))
