"""Write a planned artifact: every payload byte accounted for, published whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ninfer_formats.copying import copy_range
from ninfer_formats.errors import NinferError
from ninfer_formats.publication import Publication, publish
from ninfer_formats.write_plan import PlannedFile, WritePlan

Progress = Callable[[int], None]


class ArtifactWriter:
    """Payload access of an artifact that is being written. Bytes may come in any order, but each
    object must be covered exactly when the writer ends."""

    def __init__(
        self, plan: WritePlan, publication: Publication, progress: Progress | None = None
    ) -> None:
        self.plan = plan
        self._files = [(file, publication.file(file.name)) for file in plan.files]
        self._written = dict.fromkeys(plan.objects, 0)
        self._progress = progress or (lambda count: None)
        for file, descriptor in self._files:
            _write_all(descriptor, memoryview(file.header), 0)

    def write(self, object_id: str, data: bytes | np.ndarray, at: int = 0) -> None:
        """Write `data` into an object, `at` bytes behind its start."""
        view = memoryview(data if isinstance(data, bytes) else data.data).cast("B")
        begin = self._claim(object_id, at, len(view))
        for file, descriptor, offset, count in self._extents(begin, len(view)):
            skip = file.begin + offset - file.start - begin
            _write_all(descriptor, view[skip : skip + count], offset)
            self._progress(count)

    def copy(
        self, object_id: str, source: int, source_offset: int, count: int, at: int = 0
    ) -> None:
        """Copy `count` bytes of descriptor `source` into an object, `at` bytes behind its start."""
        begin = self._claim(object_id, at, count)
        self._copy_span(begin, source, source_offset, count)

    def copy_objects(self, first: str, last: str, source: int, source_offset: int) -> None:
        """Copy the run of objects `first`..`last`, gaps included, from `source_offset` on."""
        names = list(self.plan.objects)
        run = names[names.index(first) : names.index(last) + 1]
        for name in run:
            self._claim(name, 0, self.plan.objects[name].bytes)
        begin = self.plan.objects[first].offset
        self._copy_span(begin, source, source_offset, self.plan.objects[last].end - begin)

    def check_complete(self) -> None:
        """Raise when an object was not covered exactly: a fault of the caller, found before any
        file gets its final name."""
        for name, written in self._written.items():
            if written != self.plan.objects[name].bytes:
                raise NinferError(
                    "object was not written in full",
                    where=f"object {name}",
                    got=written,
                    want=self.plan.objects[name].bytes,
                )

    def _copy_span(self, begin: int, source: int, source_offset: int, count: int) -> None:
        for file, descriptor, offset, size in self._extents(begin, count):
            skip = file.begin + offset - file.start - begin
            copy_range(source, source_offset + skip, descriptor, offset, size, self._progress)

    def _claim(self, object_id: str, at: int, count: int) -> int:
        item = self.plan.objects[object_id]
        self._written[object_id] += count
        if at + count > item.bytes or self._written[object_id] > item.bytes:
            raise NinferError(
                "more bytes than planned",
                where=f"object {object_id}",
                got=self._written[object_id],
                want=item.bytes,
            )
        return item.offset + at

    def _extents(self, begin: int, count: int) -> Iterator[tuple[PlannedFile, int, int, int]]:
        """Yield (file, descriptor, offset in the file, count) for a run of logical bytes."""
        end = begin + count
        for file, descriptor in self._files:
            first = max(begin, file.begin)
            size = min(end, file.begin + file.payload_bytes) - first
            if size > 0:
                yield file, descriptor, file.start + first - file.begin, size


@contextmanager
def write_artifact(
    plan: WritePlan,
    path: Path,
    *,
    force: bool = False,
    replaces: Iterable[str] = (),
    progress: Progress | None = None,
) -> Iterator[ArtifactWriter]:
    """Write a planned artifact to `path` (its parts beside it).

    Nothing has a final name before the block ends well; an existing path is refused without
    `force`; free space is checked before the first byte. `replaces` names parts of the old
    artifact that go with it under `force`. `progress` gets byte counts.
    """
    sizes = {file.name: file.bytes for file in plan.files}
    with publish(path, sizes, force=force, replaces=replaces) as publication:
        writer = ArtifactWriter(plan, publication, progress)
        yield writer
        writer.check_complete()


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count
