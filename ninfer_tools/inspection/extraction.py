"""Stored files written out of an artifact."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ninfer_formats.errors import ArtifactError, UsageError, printable
from ninfer_formats.output_target import refuse_occupied, resolve_target
from ninfer_formats.publication import publish
from ninfer_formats.reader import Artifact
from ninfer_tools.console import format_bytes
from ninfer_tools.inspection.section import Section

STDOUT = "-"


@dataclass(frozen=True)
class Extraction:
    """One object to be written to `target`, a path or `-`."""

    object_id: str
    target: str


def extract(artifact: Artifact, requests: Sequence[str], force: bool) -> Section:
    """Write every `ROLE=PATH`; nothing is written unless all of them can be resolved.

    ROLE is a role, `COMPONENT:ROLE` where several components have one of that name, or an object
    id. Raises UsageError for a bad request and a path that exists (without `force`) or is a file
    of the artifact itself, ArtifactError for a role that the artifact does not have.
    """
    wanted = [plan_extraction(artifact, text) for text in requests]
    targets = [item.target for item in wanted]
    if len(set(targets)) != len(targets):
        raise UsageError("two extractions go to one path", got=", ".join(targets))
    for item in wanted:
        _check_target(artifact, item, force)
    for item in wanted:
        _write(artifact, item, force)
    sizes = [artifact.objects[item.object_id].bytes for item in wanted]
    record = [
        {"id": item.object_id, "path": item.target, "bytes": size}
        for item, size in zip(wanted, sizes, strict=True)
    ]
    lines = [
        f"wrote {printable(item.target, 400)} ({format_bytes(size)})"
        for item, size in zip(wanted, sizes, strict=True)
        if item.target != STDOUT
    ]
    return Section("extracted", record, "\n".join(lines))


def plan_extraction(artifact: Artifact, text: str) -> Extraction:
    """Resolve one `ROLE=PATH`."""
    role, equals, target = text.partition("=")
    if not role or not equals or not target:
        raise UsageError("not an extraction", got=text, want="ROLE=PATH, or ROLE=- for stdout")
    return Extraction(resolve_role(artifact, role), target)


def resolve_role(artifact: Artifact, role: str) -> str:
    """Return the object id that a role, `COMPONENT:ROLE` or object id stands for."""
    matches = {
        item.id
        for (component, name), item in artifact.resources.items()
        if role in (name, f"{component}:{name}")
    }
    if not matches and role in artifact.objects:
        return role
    if len(matches) == 1:
        return matches.pop()
    known = ", ".join(sorted(f"{component}:{name}" for component, name in artifact.resources))
    if matches:
        raise UsageError(
            "several components have this role", path=artifact.path, got=role, want=known
        )
    raise ArtifactError("artifact has no such file", path=artifact.path, got=role, want=known)


def _check_target(artifact: Artifact, item: Extraction, force: bool) -> None:
    if item.target == STDOUT:
        return
    path = Path(item.target)
    if path.exists() and not path.is_file():
        raise UsageError("the output path is not a regular file", path=path)
    size = artifact.objects[item.object_id].bytes
    refuse_occupied(resolve_target(path, {path.name: size}, force=force))
    sources = [artifact.payload.file_path(index) for index in range(len(artifact.files))]
    if path.exists() and any(s.exists() and s.samefile(path) for s in sources):
        raise UsageError("the output path is a file of the artifact itself", path=path)


def _write(artifact: Artifact, item: Extraction, force: bool) -> None:
    data = artifact.raw_payload(item.object_id).data
    if item.target == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    path = Path(item.target)
    with publish(path, {path.name: len(data)}, force=force) as output:
        descriptor, done = output.file(path.name), 0
        while done < len(data):
            done += os.pwrite(descriptor, data[done:], done)
