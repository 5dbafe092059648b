"""Where a person reads: the answer on stdout, everything else on stderr."""

from __future__ import annotations

import re
import sys
from typing import TextIO

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
# What a terminal acts on, except line feed and tab: a model must not move the cursor.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Screen:
    """Writes the two sides of an answer as they come. `quiet` writes neither."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._dim = False
        self._column: dict[str, str] = {}

    def show(self, reasoning: str, answer: str) -> None:
        if self._quiet:
            return
        if reasoning:
            self._begin_dim()
            self._write(sys.stderr, "reasoning", reasoning)
        if answer:
            self.end_reasoning()
            self._write(sys.stdout, "answer", answer)

    def end_reasoning(self) -> None:
        """Leave the dim text, on a line of its own."""
        if "reasoning" in self._column:
            self._end_line(sys.stderr, "reasoning", blank=sys.stderr.isatty())
        if self._dim:
            sys.stderr.write(_PLAIN)
            sys.stderr.flush()
            self._dim = False

    def finish(self) -> None:
        """End the lines that are begun."""
        self.end_reasoning()
        if "answer" in self._column:
            self._end_line(sys.stdout, "answer")

    def _begin_dim(self) -> None:
        if sys.stderr.isatty() and not self._dim:
            sys.stderr.write(_DIM)
            self._dim = True

    def _write(self, stream: TextIO, side: str, text: str) -> None:
        self._column[side] = text[-1]
        if stream.isatty():
            text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
        stream.write(text)
        stream.flush()

    def _end_line(self, stream: TextIO, side: str, *, blank: bool = False) -> None:
        last = self._column.pop(side)
        stream.write(("" if last == "\n" else "\n") + ("\n" if blank else ""))
        stream.flush()
