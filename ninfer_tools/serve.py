"""`ninfer serve`: a resident artifact behind HTTP."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_formats.errors import UsageError
from ninfer_tools.artifact_source import open_source
from ninfer_tools.serve_session.api_keys import gather_keys
from ninfer_tools.serve_session.gathering import Called, gather
from ninfer_tools.serve_session.listening import listen
from ninfer_tools.serve_session.options import ServeOptions
from ninfer_tools.serve_session.problems import ProblemList

if TYPE_CHECKING:
    from ninfer_tools.serve_session.lifetime import Lifetime

_PACKAGES = (
    "torch", "tokenizers", "jinja2", "PIL", "fastapi", "uvicorn", "pydantic", "prometheus_client",
    "httpx",
)  # fmt: skip
_OPEN_HOSTS = ("0.0.0.0", "::")


def run(
    *,
    file: Path | None,
    synthetic: str | None,
    config: Path | None,
    given: Mapping[str, Any],
    max_directory_bytes: int,
    json_output: bool,
) -> int:
    """Serve until a signal; return 0, or 1 when the engine has failed."""
    try:
        called = gather(file, synthetic, config, given)
        _require_packages()
        lifetime = _prepare(called, max_directory_bytes)
        return asyncio.run(lifetime.run())
    except KeyboardInterrupt:  # before the server listens to signals itself
        print("ended before the model was loaded", file=sys.stderr)
        return 0


def _require_packages() -> None:
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"not installed: {', '.join(missing)}", remedy="pip install 'ninfer[serve]'"
        )


def _prepare(called: Called, max_directory_bytes: int) -> Lifetime:
    """Return a server whose port is taken and whose engine fits, with nothing loaded yet.

    StartProblems with a line for everything that is in the way.
    """
    from ninfer_tools.serve_session.engine_checks import choose_engine
    from ninfer_tools.serve_session.lifetime import Lifetime
    from ninfer_tools.serve_session.memory_report import make_report
    from ninfer_tools.serve_session.service_setup import (
        check_request_log,
        make_http_options,
        make_service_options,
        make_setup,
    )
    from ninfer_tools.serve_session.value_checks import check_values

    options, problems = called.options, ProblemList()
    check_values(options, problems)
    sock = _take_port(options, problems)
    keys, service, choice, report = (), None, None, None
    with problems.collect():
        keys = gather_keys(options)
    with problems.collect():
        artifact = open_source(called.file, called.synthetic, max_directory_bytes)
        place = _find_place(options, problems)
        choice = choose_engine(artifact, options, place, problems)
        with problems.collect():
            service = make_service_options(options)
        with problems.collect():
            check_request_log(options, artifact)
        if choice is not None:
            report = make_report(artifact, choice, options, place)
    if report is not None and (error := report.error()) is not None:
        problems.add(error)
    problems.raise_any()
    assert sock is not None and service is not None and report is not None
    _show_start(options, report, len(keys))
    setup = make_setup(called, report.config, max_directory_bytes)
    http = make_http_options(options, keys)
    return Lifetime(setup, service, http, sock, options.drain_seconds)


def _take_port(options: ServeOptions, problems: ProblemList) -> socket.socket | None:
    if not 0 <= options.port <= 65535 or not options.host.strip():
        return None
    with problems.collect():
        return listen(options.host, options.port)
    return None


def _find_place(options: ServeOptions, problems: ProblemList) -> Any:
    """Return where the engine is to run; the processor when that cannot be used, so that
    everything else is looked at too."""
    from ninfer_tools.serve_session.place import Place, find_place

    with problems.collect():
        return find_place(options.device)
    return Place("cpu", None)


def _show_start(options: ServeOptions, report: Any, keys: int) -> None:
    from ninfer_tools.serve_session.log_output import start_logging
    from ninfer_tools.serve_session.memory_table import format_report
    from ninfer_tools.serve_session.settings_block import format_settings

    print(format_settings(options, report, keys), file=sys.stderr)
    print(format_report(report), file=sys.stderr, flush=True)
    if options.host in _OPEN_HOSTS and not keys:
        print("note: no --api-key: whoever reaches the port can use the server", file=sys.stderr)
    start_logging(options.log_level)
