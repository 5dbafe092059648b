"""Long lists in few lines: the first ten and the count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from ninfer_formats.errors import NinferError, printable

SHOWN = 10


def name_some(names: Collection[str]) -> str:
    """Return at most ten names in order, on one line, then how many there are in all."""
    shown = ", ".join(printable(name, 300) for name in list(names)[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown}, … ({len(names):,} in all)"


def shorten_problems(problems: Iterable[NinferError]) -> tuple[NinferError, ...]:
    """Return the problems with at most ten that say the same, and a last one with their count."""
    groups: dict[str, list[NinferError]] = defaultdict(list)
    for problem in problems:
        groups[problem.what].append(problem)
    short: list[NinferError] = []
    for what, group in groups.items():
        short += group[:SHOWN]
        if len(group) > SHOWN:
            paths = {problem.path for problem in group}
            path = group[0].path if len(paths) == 1 else None
            short.append(NinferError(f"{what}: {len(group):,} in all, {SHOWN} shown", path=path))
    return tuple(short)
