"""`python served_demo.py FILE [BUILD]`: a server of an artifact on a free port, which it prints."""

from __future__ import annotations

import asyncio
import functools
import socket
import sys
from pathlib import Path


def main() -> int:
    from builders import faulty_engines
    from ninfer_formats.reader import open_artifact
    from ninfer_runtime.config import EngineConfig
    from ninfer_runtime.server.app import create_app
    from ninfer_runtime.server.engine_process.entry import EngineSetup
    from ninfer_runtime.server.running import serve
    from ninfer_runtime.server.service import Service

    build = getattr(faulty_engines, sys.argv[2]) if len(sys.argv) > 2 else None
    config = EngineConfig(device="cpu", max_context=512, lanes=2, kv_capacity=1024)
    opened = functools.partial(open_artifact, Path(sys.argv[1]))

    async def run() -> int:
        service = Service(EngineSetup(opened, config, build, threads=1))
        listener = socket.create_server(("127.0.0.1", 0))
        print(listener.getsockname()[1], flush=True)
        return await serve(create_app(service), service, listener, stop_seconds=1.0)

    return asyncio.run(run())


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]
    sys.exit(main())
