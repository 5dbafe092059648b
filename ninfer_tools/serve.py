"""`ninfer serve`: a resident artifact behind HTTP."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_formats.errors import UsageError
from ninfer_tools.console import print_json
from ninfer_tools.serve_session.api_keys import gather_keys
from ninfer_tools.serve_session.gathering import Called, gather
from ninfer_tools.serve_session.listening import listen
from ninfer_tools.serve_session.options import ServeOptions
from ninfer_tools.serve_session.problems import ProblemList

if TYPE_CHECKING:
    from ninfer_runtime.server.service_options import ServiceOptions
    from ninfer_tools.serve_session.memory_report import MemoryReport
    from ninfer_tools.serve_session.place import Place

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
    json_output: bool,
) -> int:
    """Serve until a signal; return 0, or 1 when the engine has failed."""
    try:
        called = gather(file, synthetic, config, given)
        _require_packages()
        return asyncio.run(_prepare(called, json_output))
    except KeyboardInterrupt:  # before the server listens to signals itself
        print("ended before the model was loaded", file=sys.stderr)
        return 0


def _require_packages() -> None:
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"not installed: {', '.join(missing)}", remedy="pip install 'ninfer[serve]'"
        )


def _prepare(called: Called, json_output: bool) -> Coroutine[Any, Any, int]:
    """Return a server whose port is taken and whose engine fits, with nothing loaded yet.

    StartProblems with a line for everything that is in the way.
    """
    from ninfer_tools.serve_session.value_checks import check_values

    options, problems = called.options, ProblemList()
    check_values(options, problems)
    sock = _take_port(options, problems)  # before torch: clients wait instead of being refused
    keys: tuple[str, ...] = ()
    with problems.collect():
        keys = gather_keys(options)
    found = _look_at_model(called, problems)
    problems.raise_any()
    assert sock is not None and found is not None
    from ninfer_tools.serve_session.lifetime import run_server
    from ninfer_tools.serve_session.service_setup import make_http_options, make_setup

    _show_start(options, found, len(keys), json_output)
    setup = make_setup(called, found.report.config)
    http = make_http_options(options, keys)
    return run_server(setup, found.service, http, sock, options.drain_seconds)


@dataclass(frozen=True)
class _Model:
    """What the directory of the artifact and the options say together; `effective` are settings
    by field."""

    service: ServiceOptions
    report: MemoryReport
    effective: dict[str, Any]


def _look_at_model(called: Called, problems: ProblemList) -> _Model | None:
    """Return what is to be served, None with what is in the way in `problems`."""
    from ninfer_runtime.server.card import choose_name
    from ninfer_tools.serve_session.engine_checks import choose_engine
    from ninfer_tools.serve_session.memory_report import describe_engine, make_report
    from ninfer_tools.serve_session.service_setup import (
        check_request_log,
        choose_sampling,
        make_service_options,
        open_called,
    )

    options, service, choice = called.options, None, None
    with problems.collect():
        artifact = open_called(called)
        place = _find_place(options, problems)
        with problems.collect():
            choice = choose_engine(artifact, options, place, problems)
        with problems.collect():
            service = make_service_options(options)
        with problems.collect():
            check_request_log(options, artifact)
        if choice is None or service is None:
            return None
        report = make_report(artifact, choice, options, place)
        if (error := report.error()) is not None:
            raise error
        effective = {
            **describe_engine(report),
            **choose_sampling(artifact, service),
            "headroom": report.headroom,
            "model_id": options.model_id or choose_name(artifact),
        }
        return _Model(service, report, effective)
    return None


def _take_port(options: ServeOptions, problems: ProblemList) -> socket.socket | None:
    if not 0 <= options.port <= 65535 or not options.host.strip():
        return None
    with problems.collect():
        return listen(options.host, options.port)
    return None


def _find_place(options: ServeOptions, problems: ProblemList) -> Place:
    """Return where the engine is to run; the processor when that cannot be used, so that
    everything else is looked at too."""
    from ninfer_tools.serve_session.place import Place, find_place

    with problems.collect():
        return find_place(options.device)
    return Place("cpu", None)


def _show_start(options: ServeOptions, model: _Model, keys: int, json_output: bool) -> None:
    from ninfer_tools.serve_session.log_output import start_logging
    from ninfer_tools.serve_session.memory_table import format_report, make_record
    from ninfer_tools.serve_session.settings_block import format_settings, list_settings

    settings = list_settings(options, model.effective, keys)
    if json_output:
        print_json({"settings": settings, "memory": make_record(model.report)})
        sys.stdout.flush()
    else:
        print(format_settings(model.report.artifact, settings), file=sys.stderr)
        print(format_report(model.report), file=sys.stderr, flush=True)
    if options.host in _OPEN_HOSTS and not keys:
        print("note: no --api-key: whoever reaches the port can use the server", file=sys.stderr)
    start_logging(options.log_level)
