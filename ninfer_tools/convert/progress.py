"""Progress of a conversion: a bar with the tensor's name, or a plain line every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ninfer_tools.console import format_bytes

LINE_SECONDS = 10.0

Advance = Callable[[int], None]
Announce = Callable[[str], None]


@contextmanager
def show_conversion(total: int) -> Iterator[tuple[Advance, Announce]]:
    """Yield a function for byte counts and one for the name of what is being encoded."""
    if sys.stderr.isatty():
        from tqdm import tqdm

        with tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024) as bar:
            yield _ignore_result(bar.update), lambda name: bar.set_description(name[-40:])
        return
    lines = _Lines(total)
    yield lines.advance, lines.announce


def _ignore_result(update: Callable[[int], object]) -> Advance:
    def advance(count: int) -> None:
        update(count)

    return advance


class _Lines:
    """Whole lines, seldom, and nothing for what is quickly done."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._name = total, 0, ""
        self._begin = self._printed = time.monotonic()

    def announce(self, name: str) -> None:
        self._name = name

    def advance(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._printed < LINE_SECONDS:
            return
        self._printed = now
        rate = self._done / (now - self._begin)
        left = (self._total - self._done) / rate
        print(
            f"{self._name}: {format_bytes(self._done)} of {format_bytes(self._total)}, "
            f"{rate / 1e9:.3f} GB/s, {left:.0f} s left",
            file=sys.stderr, flush=True,
        )  # fmt: skip
