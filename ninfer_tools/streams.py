"""Standard streams that have nobody at the other end, or none at all (rules V-180 and V-181)."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any, TextIO

_ESCAPED = "backslashreplace"


def open_missing_streams() -> None:
    """Put the null device in the place of streams that were closed when the process began.

    Otherwise an output file could take the number of one, and get what is printed there.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "r" if descriptor == 0 else "w"
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))


def escape_unprintable() -> None:
    """Let names and paths hold what the terminal's encoding does not."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError):
            stream.reconfigure(errors=_ESCAPED)  # type: ignore[union-attr]


def outlive_reader(stream: TextIO) -> TextIO:
    """Return a stream that writes as `stream` does until its reader is gone, and then nowhere."""
    try:
        raw = _PatientFile(stream.fileno(), "wb", closefd=False)
    except (OSError, ValueError):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=stream.encoding, errors=_ESCAPED,
        line_buffering=stream.isatty() or stream is sys.stderr,
    )  # fmt: skip


class _PatientFile(io.FileIO):
    def write(self, data: Any, /) -> int | None:
        try:
            return super().write(data)
        except BrokenPipeError:
            silence(self.fileno())
            return memoryview(data).nbytes


def silence(descriptor: int) -> None:
    """Let whatever is still written to a descriptor vanish."""
    # What is left in the buffer cannot be written; the interpreter must not try once more.
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)
