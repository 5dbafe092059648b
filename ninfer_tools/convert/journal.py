"""What an unfinished conversion has done so far, line by line (rules V-52 and V-53)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ninfer_formats.errors import UsageError

NAME = "journal.jsonl"


class Journal:
    """Append-only JSON lines: first the digest of the plan, then one line per finished object."""

    def __init__(self, path: Path, digest: str, done: Mapping[str, Any]) -> None:
        self.done = dict(done)
        lines = [{"plan": digest}, *({"object": i, "record": r} for i, r in self.done.items())]
        # Written anew: the last line of a killed run may be cut off.
        draft = path.with_suffix(".draft")
        draft.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        draft.replace(path)
        self._file = path.open("a", encoding="utf-8")

    def add(self, records: Mapping[str, Any]) -> None:
        """Record finished objects durably; their bytes must be durable already."""
        for id, record in records.items():
            self._file.write(json.dumps({"object": id, "record": record}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done.update(records)

    def close(self) -> None:
        self._file.close()


def read_journal(folder: Path, digest: str) -> dict[str, Any]:
    """Return the record of every finished object by id, empty without a journal.

    Raises UsageError when the journal belongs to another plan.
    """
    try:
        lines = (folder / NAME).read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return {}
    # What follows the last line end was cut off while it was written.
    records = [json.loads(line) for line in lines[:-1]]
    if not records or records[0].get("plan") != digest:
        raise UsageError(
            "the interrupted conversion was another one: its inputs, options or program differ",
            path=folder, remedy="leave --resume out to start over",
        )  # fmt: skip
    return {record["object"]: record["record"] for record in records[1:]}
