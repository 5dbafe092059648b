"""What an unfinished conversion has done so far, line by line (rules V-52, V-53 and V-172)."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ninfer_formats.errors import UsageError

NAME = "journal.jsonl"
_CHECK = "check"


class Journal:
    """Append-only JSON lines: first the digest of the plan, then one line per finished object.

    Every line has a `check` of its own content.
    """

    def __init__(self, path: Path, digest: str, done: Mapping[str, Any]) -> None:
        self.done = dict(done)
        lines = [{"plan": digest}, *({"object": i, "record": r} for i, r in self.done.items())]
        # Written anew: the last line of a killed run may be cut off.
        draft = path.with_suffix(".draft")
        draft.write_text("".join(map(_seal, lines)), encoding="utf-8")
        draft.replace(path)
        self._file = path.open("a", encoding="utf-8")

    def add(self, records: Mapping[str, Any]) -> None:
        """Record finished objects durably; their bytes must be durable already."""
        for id, record in records.items():
            self._file.write(_seal({"object": id, "record": record}))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done.update(records)

    def close(self) -> None:
        self._file.close()


def read_journal(folder: Path, digest: str) -> dict[str, Any]:
    """Return the record of every finished object by id, empty without a readable journal.

    A line that is damaged ends it. Raises UsageError when the journal belongs to another plan.
    """
    try:
        lines = (folder / NAME).read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    # What follows the last line end was cut off while it was written.
    records = []
    for line in lines[:-1]:
        record = _unseal(line)
        if record is None:
            break
        records.append(record)
    if not records:
        return {}
    if records[0].get("plan") != digest:
        raise UsageError(
            "the interrupted conversion was another one: its inputs, options or program differ",
            path=folder, remedy="leave --resume out to start over",
        )  # fmt: skip
    return {record["object"]: record["record"] for record in records[1:]}


def _seal(record: Mapping[str, Any]) -> str:
    return json.dumps({**record, _CHECK: _sum(record)}) + "\n"


def _unseal(line: bytes) -> dict[str, Any] | None:
    """Return what was sealed, or None when the line is not what was written."""
    try:
        record = json.loads(line)
        check = record.pop(_CHECK)
        return record if check == _sum(record) else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _sum(record: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(record).encode())
