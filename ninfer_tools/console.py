"""Text for people: aligned tables, byte counts, progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ninfer_formats.errors import printable


def format_bytes(count: int) -> str:
    """Return a byte count in the largest binary unit that keeps three digits meaningful."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"


def format_table(rows: Iterable[Sequence[object]], indent: str = "  ") -> str:
    """Return rows as aligned columns; numbers lean right, everything else left."""
    table = [list(row) for row in rows]
    if not table:
        return ""
    widths = [max(len(_cell(row[i])) for row in table) for i in range(len(table[0]))]
    return "\n".join(indent + _line(row, widths) for row in table)


def print_json(record: Any) -> None:
    """Print one JSON object on one line."""
    print(json.dumps(record))


@contextmanager
def show_progress(total: int, title: str, unit: int = 1024) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes byte counts; the bar is drawn on a terminal's stderr only. A
    kilobyte has `unit` bytes."""
    if not sys.stderr.isatty() or total <= 0:
        yield lambda count: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc=title, unit="B", unit_scale=True, unit_divisor=unit) as bar:

        def advance(count: int) -> None:
            bar.update(count)

        yield advance


def _cell(value: object) -> str:
    return f"{value:,}" if type(value) is int else printable(value, 200)


def _line(row: Sequence[object], widths: Sequence[int]) -> str:
    cells = [
        _cell(value).rjust(width) if type(value) is int else _cell(value).ljust(width)
        for value, width in zip(row, widths, strict=True)
    ]
    return "  ".join(cells).rstrip()
