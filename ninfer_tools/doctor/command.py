"""`ninfer doctor`: look at this machine and, with FILE, at whether that artifact runs on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ninfer_formats.errors import printable
from ninfer_tools.console import print_json
from ninfer_tools.doctor.artifact_fit import Plan, check_artifact_fit
from ninfer_tools.doctor.checks import PROBLEM, Check, check_machine
from ninfer_tools.doctor.facts import Facts, gather_facts


def run(
    *,
    file: Path | None,
    plan: Plan,
    max_directory_bytes: int,
    json_output: bool,
    gather: Callable[[], Facts] = gather_facts,
) -> int:
    """Print every check; return 0, or 1 when something keeps the engine from running."""
    from ninfer_formats.reader import open_artifact

    artifact = None
    if file is not None:
        artifact = open_artifact(file, max_directory_bytes=max_directory_bytes)
    facts = gather()
    checks = check_machine(facts)
    if artifact is not None:
        checks += check_artifact_fit(artifact, facts, plan)
    ready = all(check.state != PROBLEM for check in checks)
    if json_output:
        print_json({"ready": ready, "checks": [check.record for check in checks]})
    else:
        _print(checks, ready)
    return 0 if ready else 1


def _print(checks: list[Check], ready: bool) -> None:
    for check in checks:
        print(f"  {check.state:<7}  {check.name:<8}  {printable(check.text, 4000)}")
        if check.remedy:
            print(f"{'':21}-> {check.remedy}")
    print("ready" if ready else "not ready")
