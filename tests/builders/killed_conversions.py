"""Conversions that are killed again and again: a program, run in a process of its own.

    python killed_conversions.py JSON

JSON has `source`, `out`, `options` of `convert`, and `moments`. For each moment a child process
converts, resuming from the second on, and kills itself (SIGKILL) at that step; 0 lets it end. Steps
are writes of bytes, syncs, journal entries and renames. Printed as JSON: the wait status of every
child, and the names that stood beside the output then.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT), str(ROOT / "formats")]


def kill_at(moment: int) -> None:
    """Kill this process before its `moment`-th step, whichever thread takes it."""
    from ninfer_tools.convert import execution, journal, workplace

    execution.SYNC_BYTES = 0
    steps = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments)

        return call

    for owner, name in (
        (workplace.ResumableWriter, "write"),
        (workplace.Workplace, "sync"),
        (journal.Journal, "add"),
        (workplace.ResumablePublication, "_place"),
    ):
        setattr(owner, name, counted(getattr(owner, name)))


def convert_in_child(job: dict[str, Any], moment: int, resume: bool) -> int:
    """Return the wait status of a child that converts and is killed at `moment`."""
    from builders.conversions import convert

    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    code = 99
    try:
        kill_at(moment)
        out = Path(job["out"])
        with contextlib.redirect_stdout(io.StringIO()):
            code = convert(Path(job["source"]), out, resume=resume, **job["options"])
    finally:
        os._exit(code)


def main(job: dict[str, Any]) -> None:
    # Everything heavy is loaded once, before the first fork; no thread runs yet.
    import torch  # noqa: F401

    import ninfer_tools.convert.encoders  # noqa: F401

    done = []
    for number, moment in enumerate(job["moments"]):
        status = convert_in_child(job, moment, number > 0)
        names = sorted(path.name for path in Path(job["out"]).parent.iterdir())
        done.append({"status": status, "names": names})
    print(json.dumps(done))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
