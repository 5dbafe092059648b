"""Conversions of tiny checkpoints, run in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ninfer_formats.reader import Artifact, open_artifact
from ninfer_tools.convert import command


def convert(folder: Path, out: Path, **options: Any) -> int:
    """Run `ninfer convert` on the CPU; return the exit code."""
    lists = {name: options.pop(name, []) for name in ("sources", "rules", "resources")}
    return command.run(source=str(folder), out=str(out), device="cpu", **lists, **options)


def converted(folder: Path, out: Path, **options: Any) -> Artifact:
    """Convert, which must succeed, and open the result."""
    assert convert(folder, out, **options) == 0
    return open_artifact(out)


def read_report(out: Path) -> dict[str, Any]:
    return json.loads(out.with_name(out.name + ".conversion.json").read_text())
