"""What the server says on stderr: one line for every event."""

from __future__ import annotations

import logging
import sys

_LOUD = ("uvicorn", "uvicorn.error", "httpx", "httpcore", "asyncio", "PIL")
_SERVICE = "ninfer_runtime.server.service"
_DATE = "%Y-%m-%d %H:%M:%S"


class LineFormatter(logging.Formatter):
    """Leaves tracebacks out, unless `full`; the error itself stays, on the same line."""

    def __init__(self, full: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", _DATE)
        self._full = full

    def format(self, record: logging.LogRecord) -> str:
        if self._full:
            return super().format(record)
        record.message = record.getMessage()
        record.asctime = self.formatTime(record, self.datefmt)
        line = (record.message.splitlines() or [""])[0]
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            said = (str(error).splitlines() or [""])[0]
            line = f"{line}: {type(error).__name__}: {said}"
        return f"{record.asctime} {record.levelname} {line}"


def _is_one_line(record: logging.LogRecord) -> bool:
    """Traces of the engine are for `debug`; that it failed is said in a line of its own."""
    return record.name != _SERVICE or "\n" not in record.getMessage()


def start_logging(level: str) -> None:
    """Send log records from `level` on to stderr; those of libraries only from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(level == "debug"))
    if level != "debug":
        handler.addFilter(_is_one_line)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _LOUD:
        logging.getLogger(name).setLevel("INFO" if level == "debug" else "WARNING")
