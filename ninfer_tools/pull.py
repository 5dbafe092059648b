"""`ninfer pull`: brings files of a pinned revision, verified, and says what they are."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninfer_formats.errors import UsageError
from ninfer_tools.console import format_bytes, print_json
from ninfer_tools.hub.artifact_files import is_entry, select_files
from ninfer_tools.hub.client import require_client
from ninfer_tools.hub.digests import Digest
from ninfer_tools.hub.published_choice import (
    Wish,
    choose_published,
    file_name,
    is_short_name,
    locate,
)
from ninfer_tools.hub.reference import parse_reference
from ninfer_tools.hub.snapshot import HubSnapshot, open_snapshot


@dataclass(frozen=True)
class Selection:
    """What to pull: the paths in the repository, and digests known before it was asked."""

    snapshot: HubSnapshot
    names: list[str]
    known: dict[str, Digest]


def run(
    *,
    target: str,
    files: list[str],
    to: Path,
    container: int | None,
    drafter: str | None,
    weights: str | None,
    force: bool,
    json_output: bool,
) -> int:
    """Pull and return the exit code. Errors are NinferErrors; partial files stay for later."""
    from ninfer_tools.hub.delivery import deliver

    require_client()
    wish = Wish(container, drafter, weights)
    selection = _select(target, files, wish)
    _say(selection.snapshot.describe())
    try:
        delivered = deliver(selection.snapshot, selection.names, selection.known, to, force, _say)
    except KeyboardInterrupt as stop:
        _say("interrupted; what has arrived is kept, the same command goes on from there")
        return 128 + getattr(stop, "number", signal.SIGINT)
    record: dict[str, Any] = {
        **selection.snapshot.as_record(),
        "files": [item.as_record() for item in delivered],
        "artifacts": [],
    }
    if not json_output:
        for item in delivered:
            print(f"{item.path}: {format_bytes(item.bytes)}, {item.describe()}")
    for item in delivered:
        if is_entry(item.name):
            record["artifacts"].append(_inspect(item.path, json_output))
    if json_output:
        print_json(record)
    return 0


def _select(target: str, files: list[str], wish: Wish) -> Selection:
    if not is_short_name(target):
        if not wish.is_empty:
            raise UsageError(
                "--container, --with and --weights choose among published artifacts",
                got=target,
                want="a short name such as qwen3.8-27b",
            )
        snapshot = open_snapshot(parse_reference(target))
        return Selection(snapshot, select_files(snapshot, files), {})
    if files:
        raise UsageError("a short name already names its file", got=", ".join(files))
    artifact = choose_published(target, wish)
    snapshot, name = locate(artifact), file_name(artifact)
    known = {name: Digest("sha256", artifact.sha256 or "", "the list of published artifacts")}
    return Selection(snapshot, select_files(snapshot, [name]), known)


def _inspect(path: Path, json_output: bool) -> dict[str, Any]:
    from ninfer_formats.reader import open_artifact
    from ninfer_tools.inspection.overview import describe
    from ninfer_tools.inspection.overview_text import render

    overview = describe(open_artifact(path))
    if not json_output:
        print(render(overview))
    return overview


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
