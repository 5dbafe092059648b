"""Write an emission: verbatim copies in runs as long as possible, the rest from memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ninfer_formats.payload import open_regular
from ninfer_formats.reader import Artifact
from ninfer_formats.write_plan import WritePlan
from ninfer_formats.writer import ArtifactWriter, write_artifact
from ninfer_tools.migrate.draft import Stored, read_content
from ninfer_tools.migrate.emission import Emission


@dataclass(frozen=True)
class CopyRun:
    """Consecutive objects of the plan whose bytes lie equally spaced in one file of a source."""

    first: str
    last: str
    artifact: Artifact
    file: int
    offset: int


def execute(
    emission: Emission,
    output: Path,
    *,
    force: bool = False,
    replaces: Iterable[str] = (),
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write the planned artifact; nothing has a final name until everything is on disk."""
    with (
        SourceFiles() as sources,
        write_artifact(
            emission.plan, output, force=force, replaces=replaces, progress=progress
        ) as writer,
    ):
        for step in plan_steps(emission):
            if isinstance(step, CopyRun):
                source = sources.open(step.artifact, step.file)
                writer.copy_objects(step.first, step.last, source, step.offset)
            else:
                _write_object(writer, emission, step, sources)


def plan_steps(emission: Emission) -> Iterator[CopyRun | str]:
    """Yield runs that one copy moves, and names of objects that need something else."""
    run: CopyRun | None = None
    for name in emission.plan.objects:
        span = _find_span(emission, name)
        if run and span and _continues(emission.plan, run, name, *span):
            run = CopyRun(run.first, name, run.artifact, run.file, run.offset)
            continue
        if run:
            yield run
        run = CopyRun(name, name, *span) if span else None
        if span is None:
            yield name
    if run:
        yield run


def _find_span(emission: Emission, name: str) -> tuple[Artifact, int, int] | None:
    """Return (artifact, file, offset) of content that lies in one file of its source."""
    content = emission.contents[name]
    if not isinstance(content, Stored):
        return None
    item = content.artifact.objects[content.object_id]
    extents = content.artifact.payload.extents(item.offset, item.bytes)
    if len(extents) != 1:
        return None
    return content.artifact, extents[0].file, extents[0].offset


def _continues(
    plan: WritePlan, run: CopyRun, name: str, artifact: Artifact, file: int, offset: int
) -> bool:
    distance = plan.objects[name].offset - plan.objects[run.first].offset
    return artifact is run.artifact and file == run.file and offset == run.offset + distance


def _write_object(
    writer: ArtifactWriter, emission: Emission, name: str, sources: SourceFiles
) -> None:
    content = emission.contents[name]
    if not isinstance(content, Stored):
        writer.write(name, read_content(content))
        return
    item = content.artifact.objects[content.object_id]
    at = 0
    for extent in content.artifact.payload.extents(item.offset, item.bytes):
        source = sources.open(content.artifact, extent.file)
        writer.copy(name, source, extent.offset, extent.bytes, at)
        at += extent.bytes


class SourceFiles:
    """Descriptors of source files, opened once each and closed together."""

    def __init__(self) -> None:
        self._open: dict[Path, int] = {}

    def __enter__(self) -> SourceFiles:
        return self

    def __exit__(self, *exc: object) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)

    def open(self, artifact: Artifact, file: int) -> int:
        """Return a descriptor of file `file` of an artifact whose header was checked."""
        artifact.payload.file(file)
        path = artifact.payload.file_path(file)
        if path not in self._open:
            self._open[path] = open_regular(path)[0]
        return self._open[path]


def source_paths(artifacts: Sequence[Artifact]) -> list[Path]:
    """Return every file that the artifacts consist of."""
    return [
        artifact.payload.file_path(index)
        for artifact in artifacts
        for index in range(len(artifact.files))
    ]
