"""SHA-256 of the files a conversion reads, and whether they stay what they were (V-150 to V-153).

Weights are hashed by a thread that keeps near the place where the conversion reads, so that the
pages come from the disk once for both.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.output_target import OutputTarget
from ninfer_tools.console import show_progress
from ninfer_tools.convert.plan import ConversionPlan
from ninfer_tools.convert.request import OpenedSource
from ninfer_tools.convert.sources.checkpoint import CONFIG
from ninfer_tools.convert.sources.resources import OLD_TEMPLATE, ROLES
from ninfer_tools.convert.sources.weight_files import INDEX
from ninfer_tools.convert.whole_file import hash_file, write_whole

# The hasher stays at most so far ahead of the conversion.
LEAD_BYTES = 1 << 30
Facts = tuple[int, int, int, int]


@dataclass(frozen=True)
class SourceFile:
    """A file that is read: which source it is of, and the SHA-256 that the hub states."""

    source: str
    name: str
    path: str
    sha256: str | None = None


def list_source_files(
    plan: ConversionPlan, opened: Mapping[str, OpenedSource]
) -> tuple[SourceFile, ...]:
    """Return config, index, frontend and weight files of all sources, these in reading order."""
    small, weights = [], {}
    for key, item in opened.items():
        files, snapshot = item.checkpoint.files, item.snapshot
        stated = {} if snapshot is None else snapshot.files
        for name in (CONFIG, INDEX, *ROLES, OLD_TEMPLATE, *item.checkpoint.weight_files):
            if name not in files.names():
                continue
            known = stated[name].sha256 if name in stated else None
            file = SourceFile(key, name, files.path(name), known)
            if name in item.checkpoint.weight_files:
                weights[file.path] = file
            else:
                small.append(file)
    read = {
        tensor.path: None
        for parent in plan.parents.values()
        for r in parent.ranges[:1]
        if r.parameter in plan.sources
        for tensor in plan.sources[r.parameter].tensors[:1]
    }
    order = [*(path for path in read if path in weights), *(p for p in weights if p not in read)]
    return (*small, *(weights[path] for path in order))


class _StoppedError(Exception):
    """Nobody waits for the digest any more."""


class SourceHashes:
    """Hashes source files while they are converted; `digests` maps path -> SHA-256.

    `follow` wraps the conversion's progress function. What is known is noted in the work folder,
    so that a resumed run can tell whether the files are still the same.
    """

    def __init__(self, files: Sequence[SourceFile], notes: Path, total: int) -> None:
        """`total` is the byte count after which the conversion has read everything."""
        self._files, self._notes, self._total = files, notes, total
        self._facts = {file.path: read_facts(file.path) for file in files}
        self.digests = {file.path: file.sha256 for file in files if file.sha256 is not None}
        self._bytes = sum(facts[0] for facts in self._facts.values())
        self._hashed, self._converted, self._noted = 0, 0, -1
        self._fault: NinferError | None = None
        self._moved, self._stopped = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, name="hash sources", daemon=True)

    def resume(self) -> None:
        """Take over what an interrupted run of the same output has noted.

        Raises UsageError naming the file when one is not what that run read.
        """
        for path, (facts, digest) in _read_notes(self._notes).items():
            if path not in self._facts:
                continue
            if facts != self._facts[path]:
                with show_progress(self._facts[path][0], f"checking {Path(path).name}") as advance:
                    now = self._hash(path, advance)
                if digest is None or digest != now:
                    raise UsageError(
                        "the source changed after the conversion was interrupted", path=path,
                        remedy="leave --resume out to start over",
                    )  # fmt: skip
            if digest is not None:
                self.digests[path] = digest

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._moved:
            self._stopped = True
            self._moved.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def follow(self, advance: Callable[[int], None]) -> Callable[[int], None]:
        """Return a progress function that also lets the hasher go on.

        It raises NinferError when a source changed; with the last byte it looks at all of them.
        """

        def step(count: int) -> None:
            advance(count)
            with self._moved:
                self._converted += count
                self._moved.notify()
            if self._fault is not None:
                raise self._fault
            if self._converted >= self._total:
                self._refuse_changes()
            self._note()

        return step

    def finish(self) -> None:
        """Hash what is left; raises NinferError when a source changed since it was opened."""
        left = self._bytes - self._hashed
        with show_progress(left, "hashing sources") as advance:
            with self._moved:
                self._converted, before = self._total, self._hashed
                self._moved.notify()
            while self._thread.is_alive():
                self._thread.join(0.2)
                advance(self._hashed - before)
                before = self._hashed
        if self._fault is not None:
            raise self._fault
        self._refuse_changes()
        self._note()

    def _run(self) -> None:
        try:
            for file in self._files:
                if file.path in self.digests:
                    self._hashed += self._facts[file.path][0]
                else:
                    self.digests[file.path] = self._hash(file.path, self._pace)
        except _StoppedError:
            return
        except NinferError as error:
            self._fault = error
        except OSError as error:
            self._fault = NinferError(f"cannot read: {error.strerror}", path=error.filename)

    def _hash(self, path: str, advance: Callable[[int], None]) -> str:
        """Return the SHA-256 of a file that stayed the same; else NinferError."""
        digest = hash_file(Path(path), advance)
        self._check(path)
        return digest

    def _pace(self, count: int) -> None:
        self._hashed += count
        with self._moved:
            while not self._stopped and self._hashed > self._allowed():
                self._moved.wait()
        if self._stopped:
            raise _StoppedError

    def _allowed(self) -> float:
        return LEAD_BYTES + self._bytes * min(1.0, self._converted / max(1, self._total))

    def _refuse_changes(self) -> None:
        for file in self._files:
            self._check(file.path)

    def _check(self, path: str) -> None:
        if read_facts(path) != self._facts[path]:
            raise NinferError(
                "the source changed while it was converted", path=path,
                remedy="leave it alone and convert again, without --resume",
            )  # fmt: skip

    def _note(self) -> None:
        """Write what is known into the work folder, whenever there is more."""
        if len(self.digests) == self._noted:
            return
        known = dict(self.digests)
        self._noted = len(known)
        records = {path: [*facts, known.get(path)] for path, facts in self._facts.items()}
        write_whole(self._notes, json.dumps(records).encode())


@contextmanager
def hash_sources(
    plan: ConversionPlan, opened: Mapping[str, OpenedSource], target: OutputTarget, resume: bool
) -> Iterator[SourceHashes]:
    """Hash the sources of a conversion that runs in the block; raises as `SourceHashes.resume`."""
    total = sum(item.bytes for item in plan.written.objects.values())
    hashes = SourceHashes(list_source_files(plan, opened), _notes_path(target), total)
    if resume:
        hashes.resume()
    hashes.start()
    try:
        yield hashes
    finally:
        hashes.stop()


def add_digests(
    records: Mapping[str, Mapping[str, Any]],
    opened: Mapping[str, OpenedSource],
    digests: Mapping[str, str],
) -> None:
    """Add `sha256` to the `files` of a report's sources."""
    for key, item in opened.items():
        for name, record in records[key]["files"].items():
            digest = digests.get(item.checkpoint.files.path(name))
            if digest is not None:
                record["sha256"] = digest


def _notes_path(target: OutputTarget) -> Path:
    """Return a place in the work folder that goes when the written files go."""
    folder = target.parent / f".{target.entry}.ninfer-convert"
    return folder / "new" / f".{target.entry}.sources"


def read_facts(path: str) -> Facts:
    """Return byte count, inode, and the times (ns) of the last change of content and of state."""
    try:
        found = Path(path).stat()
    except OSError as error:
        raise NinferError(f"cannot read: {error.strerror}", path=path) from None
    return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _read_notes(path: Path) -> dict[str, tuple[Facts, str | None]]:
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: ((size, inode, changed, state), digest)
            for name, (size, inode, changed, state, digest) in records.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
