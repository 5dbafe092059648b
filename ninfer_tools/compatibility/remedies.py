"""Commands that help: migrations and pinned downloads."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from pathlib import Path

from ninfer_formats.directory import Identity
from ninfer_formats.inventories.published import PublishedArtifact, published_versions
from ninfer_formats.reader import Artifact
from ninfer_tools.compatibility.contracts import find_identity, list_drafters
from ninfer_tools.compatibility.engine import Engine
from ninfer_tools.compatibility.verdict import Finding, way_out


def migrate_command(path: Path, version: int, drop: Collection[str] = ()) -> str:
    """Return the command that rewrites `path` beside itself in another container version."""
    lost = "".join(f"-no-{group}" for group in drop)
    output = path.with_name(f"{path.stem}-v{version}{lost}.ninfer")
    words = ["ninfer", "migrate", _as_argument(path), _as_argument(output), "--to", str(version)]
    for group in drop:
        words += ["--drop", group]
    return shlex.join(words)


def _as_argument(path: Path) -> str:
    # A name that begins with a dash would be taken for an option.
    text = str(path)
    return f"./{text}" if text.startswith("-") else text


def _find_download(
    identity: Identity | None, engine: Engine, drafter: str | None
) -> PublishedArtifact | None:
    """Return the published artifact of an identity that the engine loads, None if there is none.

    Only files with a known revision count: without one the newest container is fetched. A file
    with the drafter asked for comes first, then one without a drafter, then the newest.
    """
    if identity is None:
        return None
    found = [
        item
        for item in published_versions(identity, engine.container)
        if item.revision is not None and item.drafter in (None, *engine.drafters)
    ]
    # Sorting keeps the order of publication among equals, and the last one is the newest.
    found.sort(key=lambda item: (item.drafter == drafter, item.drafter is None))
    return found[-1] if found else None


def offer_download(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    """Offer the published artifact of the same identity that the engine loads."""
    drafter = next(reversed(list_drafters(artifact)), None)
    found = _find_download(find_identity(artifact), engine, drafter)
    if found is not None:
        yield way_out(found.download_command)
