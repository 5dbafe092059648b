"""`--verify`: every structural rule, and every payload byte against its numeric format."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ninfer_formats.codecs.findings import Severity
from ninfer_formats.completeness import Examination
from ninfer_formats.directory import StoredObject, Tensor
from ninfer_formats.object_records import find_object_problem
from ninfer_formats.reader import Artifact
from ninfer_tools.console import format_bytes, show_progress
from ninfer_tools.inspection.fault import PayloadFault
from ninfer_tools.inspection.files import is_readable
from ninfer_tools.inspection.resource_checks import check_resources
from ninfer_tools.inspection.section import Section
from ninfer_tools.inspection.tensor_checks import (
    check_divisors,
    check_tensor,
    check_token_ids,
    find_plain_norms,
)
from ninfer_tools.inspection.zero_tail import check_zero_tails

_MOST_THREADS = 8
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Verification:
    """What was checked, how long it took, and everything that was found."""

    objects: int
    checked: int
    bytes: int
    seconds: float
    faults: tuple[PayloadFault, ...]

    @property
    def errors(self) -> list[PayloadFault]:
        return [fault for fault in self.faults if fault.severity == "error"]

    @property
    def notices(self) -> list[PayloadFault]:
        return [fault for fault in self.faults if fault.severity == "notice"]


def verify(artifact: Artifact) -> Section:
    """Check everything and return the report; its code is 1 when there is any error."""
    with show_progress(sum(item.bytes for item in artifact.objects.values()), "verify") as progress:
        found = verify_payload(artifact, progress)
    record: dict[str, Any] = {
        "ok": not found.errors,
        "objects": found.objects,
        "checked": found.checked,
        "bytes": found.bytes,
        "seconds": round(found.seconds, 3),
        "errors": [fault.as_record() for fault in found.errors],
        "notices": [fault.as_record() for fault in found.notices],
    }
    lines = [str(fault) for fault in (*found.errors, *found.notices)]
    return Section("verify", record, "\n".join([*lines, _summary(found)]), int(bool(found.errors)))


def _summary(found: Verification) -> str:
    rate = f"{found.bytes / max(found.seconds, 1e-9) / 1e6:,.0f} MB/s"
    effort = f"{format_bytes(found.bytes)} in {found.seconds:.1f} s, {rate}"
    left = found.objects - found.checked
    unchecked = f", {left:,} could not be checked" if left else ""
    if found.errors:
        counts = f"errors: {len(found.errors):,}, notices: {len(found.notices):,}"
        return f"{counts}, objects: {found.objects:,}{unchecked} ({effort})"
    if found.notices:
        checked, notices = _count(found.checked, "object"), _count(len(found.notices), "notice")
        return f"no illegal word in {checked}{unchecked}, {notices} ({effort})"
    legal = f"all {found.checked:,} objects legal" if not left else f"{found.checked:,} legal"
    return f"{legal}{unchecked} ({effort})"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def verify_payload(artifact: Artifact, progress: Progress = lambda count: None) -> Verification:
    """Check structure, then every readable object, in threads and in file order."""
    begin = time.perf_counter()
    examination = artifact.examination
    readable = [item for item in artifact.objects.values() if _is_checkable(artifact, item)]
    usable = frozenset(item.id for item in readable)
    geometry = examination.geometry
    faults = [
        *_structural_faults(examination),
        *check_resources(artifact, geometry.vision if geometry else None, usable),
        *_tensor_faults(artifact, readable, progress),
        *check_divisors(artifact, usable),
        *check_token_ids(artifact, geometry.text.vocab_size if geometry else None, usable),
        *check_zero_tails(artifact),
    ]
    return Verification(
        objects=len(artifact.objects),
        checked=len(readable),
        bytes=sum(item.bytes for item in readable),
        seconds=time.perf_counter() - begin,
        faults=tuple(faults),
    )


def _is_checkable(artifact: Artifact, item: StoredObject) -> bool:
    if find_object_problem(item) is not None:
        return False
    runs = artifact.payload.extents(item.offset, item.bytes)
    return all(is_readable(artifact, run.file) for run in runs)


def _structural_faults(examination: Examination) -> Iterator[PayloadFault]:
    """Yield what the directory alone shows. That a group cannot be judged is no damage."""
    unreadable = {f"group {g.group}" for g in examination.groups if g.state == "unreadable"}
    for problem in examination.problems:
        severity: Severity = "notice" if problem.where in unreadable else "error"
        yield PayloadFault(severity, "", "structure", f"{severity}: {problem}")
    for notice in examination.notices:
        yield PayloadFault("notice", "", "structure", f"notice: {notice}")


def _tensor_faults(
    artifact: Artifact, items: Sequence[StoredObject], progress: Progress
) -> Iterator[PayloadFault]:
    plain_norms = find_plain_norms(artifact)

    def check(item: StoredObject) -> list[PayloadFault]:
        return check_tensor(artifact, item, plain_norms) if isinstance(item, Tensor) else []

    # Not a `with` block: it would wait for every tensor still in the queue after Ctrl-C.
    pool = ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1))
    try:
        for item, faults in zip(items, pool.map(check, items), strict=True):
            progress(item.bytes)
            yield from faults
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
