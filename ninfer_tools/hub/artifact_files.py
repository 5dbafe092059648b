"""Which files of a repository a pull brings, and the parts an entry file needs beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.reader import open_artifact
from ninfer_tools.hub.listing import match_names, name_some, require_plain
from ninfer_tools.hub.snapshot import HubSnapshot

_PART = re.compile(r"(.+\.ninfer)\.part-\d{4,}")


def is_entry(name: str) -> bool:
    """Tell whether a path names the entry file of an artifact."""
    return name.endswith(".ninfer")


def select_files(snapshot: HubSnapshot, patterns: Iterable[str]) -> list[str]:
    """Return the paths that the patterns ask for, all artifacts without any; parts come along.

    Parts stand before entries, so an entry is never there without its parts. Raises UsageError
    for a pattern that nothing matches.
    """
    wanted = list(patterns)
    selected: dict[str, None] = {}
    for pattern in wanted or ["*.ninfer"]:
        found = match_names(snapshot.files, [pattern])
        if not found:
            what = "no file matches" if wanted else "the repository holds no .ninfer file"
            raise UsageError(
                what,
                where=str(snapshot.pinned),
                got=pattern if wanted else None,
                want=name_some(snapshot.files),
            )
        selected.update(dict.fromkeys(found))
    selected.update(
        (name, None)
        for name in snapshot.files
        if (match := _PART.fullmatch(name)) and match[1] in selected
    )
    for name in selected:
        require_plain(name, str(snapshot.pinned))
    return sorted(selected, key=is_entry)


def check_entry(path: Path, name: str, snapshot: HubSnapshot, present: Iterable[str]) -> None:
    """Open a downloaded entry and check that its parts are `present` or in the repository.

    `path` is where the bytes lie, `name` the path in the repository. Raises ForeignFileError or
    ArtifactError for what is no usable artifact, NinferError naming the missing parts.
    """
    artifact = open_artifact(path)
    parts = [str(PurePosixPath(name).with_name(item.path)) for item in artifact.files if item.path]
    known = set(present)
    missing = [part for part in parts if part not in known]
    if missing:
        raise NinferError(
            f"the entry needs parts that were not pulled: {name_some(missing)}",
            where=f"{snapshot.pinned}/{name}",
            remedy="name them as FILES too; if the repository lacks them, ask its publisher",
        )
