"""`ninfer plan`: what an engine takes of memory, and what would fit, without one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ninfer_formats.errors import UsageError
from ninfer_tools.console import print_json
from ninfer_tools.serve_session.byte_sizes import parse_size
from ninfer_tools.serve_session.gathering import gather
from ninfer_tools.serve_session.problems import ProblemList


def run(
    *,
    file: Path | None,
    synthetic: str | None,
    config: Path | None,
    given: Mapping[str, Any],
    memory: str | None,
    json_output: bool,
) -> int:
    """Print the plan; return 0, or 1 when it does not fit. StartProblems with a line for every
    option that cannot be."""
    called = gather(file, synthetic, config, given)
    if find_spec("torch") is None:
        raise UsageError("not installed: torch", remedy="pip install 'ninfer[serve]'")
    from ninfer_tools.serve_session.engine_checks import choose_engine
    from ninfer_tools.serve_session.memory_report import make_report
    from ninfer_tools.serve_session.memory_table import format_report, make_record
    from ninfer_tools.serve_session.place import Place, imagine_place
    from ninfer_tools.serve_session.service_setup import open_called
    from ninfer_tools.serve_session.value_checks import check_values

    options, problems = called.options, ProblemList()
    check_values(options, problems)
    place = Place("cpu", None)
    with problems.collect():
        size = None if memory is None else parse_size(memory, "--memory")
        place = imagine_place(options.device, size)
    artifact = open_called(called)
    choice = choose_engine(artifact, options, place, problems)
    problems.raise_any()
    assert choice is not None
    report = make_report(artifact, choice, options, place)
    if json_output:
        print_json(make_record(report))
    else:
        print(format_report(report), flush=True)
    error = report.error()
    if error is not None:
        print(str(error), file=sys.stderr)
    return 0 if error is None else 1
