"""Lines of the table of scores: what the engine got right beside what transformers did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

HEADER = ("task", "n", "engine", "recorded", "items", "points", "differing", "verdict")
WIDTHS = (30, 8, 9, 9, 7, 8, 10, 9)
VERDICTS = {None: "-", True: "ok", False: "MISSED"}


@dataclass
class Row:
    """A line: right items here and in the record, or two shares, and their difference in points.

    `differing` counts items that are right in one of the two only, None where the record does not
    say which are. `near` is None where nothing is compared or bound.
    """

    task: str
    n: int
    engine: float
    recorded: float | None
    points: float | None = None
    differing: int | None = None
    near: bool | None = None
    wrong: list[int] = field(default_factory=list)

    def print(self) -> None:
        gap = None if self.recorded is None else self.engine - self.recorded
        verdict = VERDICTS[self.near]
        print_line(
            self.task, self.n, self.engine, self.recorded, gap, self.points, self.differing, verdict
        )


def print_line(*cells: object) -> None:
    texts = ["-" if cell is None else _show(cell) for cell in cells]
    padded = [text.rjust(width) for text, width in zip(texts, WIDTHS, strict=True)]
    print(texts[0].ljust(WIDTHS[0]) + "".join(padded[1:]), flush=True)


def _show(cell: object) -> str:
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def compare_counts(
    task: str, asked: int, right: int, recorded: int | None, bound: float, other: int | None = None
) -> Row:
    """Compare right items: near means within `bound` points of those asked, or one item.

    With the count of a record in `other` precision, near either of them or between them is near:
    rounding alone moves the count that far.
    """
    if recorded is None:
        return Row(task, asked, right, None)
    slack = max(1.0, bound / 100 * asked)
    both = (recorded, recorded if other is None else other)
    near = min(both) - slack <= right <= max(both) + slack
    return Row(task, asked, right, recorded, 100 * (right - recorded) / asked, None, near)


def compare_items(
    task: str,
    asked: int,
    wrong: Iterable[int],
    theirs: Iterable[int],
    bound: float,
    other: Iterable[int] | None = None,
) -> Row:
    """Compare the numbers of wrong items with the recorded ones among the same items."""
    ours, theirs = set(wrong), set(theirs)
    count = None if other is None else asked - len(set(other))
    row = compare_counts(task, asked, asked - len(ours), asked - len(theirs), bound, count)
    row.differing, row.wrong = len(ours ^ theirs), sorted(ours)
    return row


def compare_share(task: str, asked: int, ours: float, theirs: float, bound: float | None) -> Row:
    """Compare percentages; without a bound they are only shown."""
    near = None if bound is None else abs(ours - theirs) <= bound
    return Row(task, asked, ours, theirs, ours - theirs, None, near)


def add_up(name: str, rows: list[Row], bound: float) -> Row:
    """Return the line of a whole set."""
    right, recorded = sum(row.engine for row in rows), [row.recorded for row in rows]
    known = [row.differing for row in rows]
    whole = compare_counts(
        f"{name}: all", sum(row.n for row in rows), round(right),
        None if None in recorded else round(sum(count or 0 for count in recorded)), bound,
    )  # fmt: skip
    whole.differing = None if None in known else sum(count or 0 for count in known)
    return whole
