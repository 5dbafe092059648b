"""Progress of a transfer: a bar on a terminal, a plain line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ninfer_tools.console import show_progress

LINE_SECONDS = 10.0
_LINE = "{desc}: {n_fmt} of {total_fmt} ({percentage:.0f} %), {rate_fmt}, {remaining} left"


@contextmanager
def show_transfer(total: int, title: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes byte counts (negative after a fresh start) and shows them."""
    if sys.stderr.isatty() or total <= 0:
        with show_progress(total, title) as advance:
            yield advance
        return
    bar_class = plain_line_bar()
    with bar_class(total=total, desc=title, unit="B", unit_scale=True, miniters=1) as bar:

        def advance_lines(count: int) -> None:
            bar.update(count)

        yield advance_lines


def plain_line_bar() -> Any:
    """Return the progress bar class: None (the caller's own) on a terminal, else plain lines."""
    if sys.stderr.isatty():
        return None
    from tqdm import tqdm

    class LineBar(tqdm):
        """A bar that prints whole lines, seldom, and nothing for what is quickly done."""

        def __init__(self, *args: Any, **options: Any) -> None:
            self._printed = time.monotonic()
            options.pop("name", None)
            super().__init__(*args, **{**options, "bar_format": _LINE, "disable": False})

        def display(self, *args: object, **options: object) -> Any:
            now = time.monotonic()
            if self.total and self.n and now - self._printed >= LINE_SECONDS:
                self._printed = now
                print(str(self), file=sys.stderr, flush=True)
            return True

        def close(self) -> None:
            # The last line of tqdm itself would be printed without its line end.
            self.leave = False
            self.disable = True

    return LineBar
