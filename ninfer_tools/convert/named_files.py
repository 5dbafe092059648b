"""Every file that a run reads or writes, so that none is written over another (V-185, V-186)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ninfer_formats.errors import UsageError
from ninfer_formats.reader import list_parts
from ninfer_tools.convert.calibration.order import calibration_path
from ninfer_tools.convert.manifest import manifest_path
from ninfer_tools.convert.report import report_path
from ninfer_tools.convert.request import OpenedSource, SnapshotFiles

_SOURCE = "a file of the source"
_REMEDY = "choose another name for it"


@dataclass(frozen=True)
class NamedFile:
    """A file and what messages call it."""

    what: str
    path: Path


@dataclass(frozen=True)
class NamedFiles:
    """What a run reads and what it writes."""

    reads: tuple[NamedFile, ...]
    writes: tuple[NamedFile, ...]

    def refuse_overlaps(self) -> None:
        """Raise UsageError when a file that is written is read too, or is written twice.

        Names are compared by the file they lead to, through links of either kind.
        """
        taken: dict[object, str] = {}
        for item in self.reads:
            for key in _identify(item.path):
                taken.setdefault(key, item.what)
        for item in self.writes:
            keys = set(_identify(item.path))
            other = next((taken[key] for key in keys if key in taken), None)
            if other is not None:
                what = f"the {item.what} is {other}"
                raise UsageError(what, path=item.path, remedy=_REMEDY)
            taken.update(dict.fromkeys(keys, f"the {item.what}, too"))

    def add_reads(self, more: Iterable[NamedFile]) -> NamedFiles:
        return replace(self, reads=(*self.reads, *more))

    def add_parts(self, output: Path, names: Iterable[str]) -> NamedFiles:
        """Return these and the parts of the artifact, beside its entry."""
        others = dict.fromkeys(name for name in names if name != output.name)
        parts = (output.with_name(name) for name in others)
        found = (NamedFile("artifact's part", path) for path in parts)
        return replace(self, writes=(*self.writes, *found))


def _identify(path: Path) -> Iterator[object]:
    """Yield the real name, that of a link itself, and the inode where there is a file."""
    # Writers replace a name in its folder: the last component is not followed by them.
    try:
        yield str(Path(os.path.realpath(path.parent)) / path.name)
        yield os.path.realpath(path)
        found = path.stat()
    except (OSError, ValueError):
        return
    yield found.st_dev, found.st_ino


def list_conversion_files(
    output: Path,
    *,
    inputs: Mapping[str, Iterable[Path | None]],
    calibrates: bool,
    manifest: bool,
    save_ranking: Path | None,
) -> NamedFiles:
    """Return what `ninfer convert` reads by its options, and writes.

    `inputs` maps what messages call them (`--recipe`, …) to files. Sources and parts are added
    when they are known. Raises UsageError for an output without a name.
    """
    if not output.name:
        raise UsageError("the output is not a file name", path=output)
    reads = [
        NamedFile(f"the file of {option}", path)
        for option, paths in inputs.items()
        for path in paths
        if path is not None
    ]
    writes = [NamedFile("output", output), NamedFile("report", report_path(output))]
    if calibrates:
        writes.append(NamedFile("calibration to save", calibration_path(output)))
    if manifest:
        writes.append(NamedFile("manifest", manifest_path(output)))
    if save_ranking is not None:
        writes.append(NamedFile("file of --save-ranking", save_ranking))
    return NamedFiles(tuple(reads), tuple(writes))


def list_source_files(
    opened: Mapping[str, OpenedSource], output: Path | None = None, *, resume: bool = False
) -> Iterator[NamedFile]:
    """Yield every file of the folders of the sources.

    With `resume` a calibration that the interrupted run saved there for `output` is none of them.
    """
    own = None if output is None or not resume else os.path.realpath(calibration_path(output))
    for item in opened.values():
        files = item.checkpoint.files
        if isinstance(files, SnapshotFiles):
            continue
        for name in files.names():
            if os.path.realpath(files.path(name)) != own:
                yield NamedFile(_SOURCE, Path(files.path(name)))


def list_verification_files(
    artifact: Path, plot: Path, opened: Mapping[str, OpenedSource]
) -> NamedFiles:
    """Return what `ninfer verify FILE --against SRC --plot` reads, and its picture."""
    parts = (artifact.with_name(name) for name in list_parts(artifact))
    reads = [NamedFile("the artifact", artifact), *(NamedFile("a part of it", p) for p in parts)]
    return NamedFiles((*reads, *list_source_files(opened)), (NamedFile("picture", plot),))
