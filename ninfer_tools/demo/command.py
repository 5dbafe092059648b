"""`ninfer demo`: what the bundled checkpoint is, and where it lies."""

from __future__ import annotations

from typing import Any

from ninfer_formats.errors import UsageError
from ninfer_tools.console import print_json
from ninfer_tools.demo.cache import demo_home, find_broken, locate_demo
from ninfer_tools.demo.manifest import PARTS, read_manifest, read_metrics
from ninfer_tools.demo.overview import describe, show


def run(*, part: str, path: bool, json_output: bool) -> int:
    if part not in PARTS:
        raise UsageError("no such part of the demo checkpoint", got=part, want=" or ".join(PARTS))
    if path:
        folder = str(locate_demo(part))
        if json_output:
            print_json({"part": part, "path": folder})
        else:
            print(folder)
        return 0
    record = describe(read_manifest(), read_metrics(), _unpacked())
    if json_output:
        print_json(record)
    else:
        show(record)
    return 0


def _unpacked() -> dict[str, Any]:
    """Where the checkpoint lies or would lie, without writing anything."""
    manifest = read_manifest()
    folder = demo_home() / manifest.digest
    return {"path": str(folder), "complete": not find_broken(manifest, folder)}
