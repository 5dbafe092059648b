"""What a legality check reports: kind, severity, the first place, and how many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Severity = Literal["error", "notice"]
Unit = Literal["column", "group"]


@dataclass(frozen=True)
class Finding:
    """One kind of trouble in one tensor.

    `row` and `column` or `group` give the first place (None where the kind has none); `count`
    counts places. `message` says what is wrong, without the place.
    """

    kind: str
    severity: Severity
    message: str
    count: int = 1
    row: int | None = None
    column: int | None = None
    group: int | None = None

    def __str__(self) -> str:
        place = [
            f"{name} {at}"
            for name, at in (("row", self.row), ("column", self.column), ("group", self.group))
            if at is not None
        ]
        return (
            f"{self.message} (first at {', '.join(place)}; {self.count} in all)"
            if place
            else (self.message)
        )


@dataclass(frozen=True)
class Fault:
    """A kind of finding before it is met."""

    kind: str
    severity: Severity
    message: str

    def at(self, count: int, row: int, **place: int) -> Finding:
        return Finding(self.kind, self.severity, self.message, count, row, **place)


def find_in(
    fault: Fault, bad: NDArray[Any], unit: Unit, row: int, offset: int = 0
) -> list[Finding]:
    """Return at most one finding for the true entries of `bad` [n, m].

    `row` is the tensor row of `bad[0]` and `offset` the column or group of `bad[:, 0]`.
    """
    count = int(np.count_nonzero(bad))
    if not count:
        return []
    first_row, first = divmod(int(np.argmax(bad)), bad.shape[1])
    return [fault.at(count, row + first_row, **{unit: offset + first})]


def merge(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding per kind: the first place met, all counts added."""
    merged: dict[str, Finding] = {}
    for finding in findings:
        seen = merged.get(finding.kind)
        count = finding.count + (seen.count if seen else 0)
        merged[finding.kind] = replace(seen or finding, count=count)
    return list(merged.values())
