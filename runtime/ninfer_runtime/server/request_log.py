"""One line per request: for people on stderr, for programs in a file."""

from __future__ import annotations

import logging

from ninfer_runtime.server.log_file import JsonLines
from ninfer_runtime.server.request_record import RequestRecord

# Its own name: whoever sets levels can keep these lines and drop others.
_log = logging.getLogger("ninfer.requests")


class RequestLog:
    """Reports ended requests; neither texts nor keys are in a record."""

    def __init__(self, lines: JsonLines | None) -> None:
        self._lines = lines

    def report(self, record: RequestRecord) -> None:
        _log.info("%s", write_line(record))
        if self._lines is not None:
            self._lines.write(record.fields())

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()


def write_line(record: RequestRecord) -> str:
    """Return the line for people."""
    # A path may spell line ends and worse; one request, one line.
    path = "".join(sign if sign.isprintable() else "?" for sign in record.path[:100])
    parts = [f"{record.id} {record.method} {path} {record.status or '-'}"]
    if record.prompt is not None:
        parts.append(_describe_prompt(record))
    if record.thinking is not None:
        parts.append(_describe_thinking(record))
    if record.finished:
        parts.append(_describe_answer(record))
    if record.first is not None:
        parts.append(f"first token {record.first:.2f} s")
    parts.append(f"total {record.total or 0:.2f} s")
    outcome = record.outcome
    param = f" ({record.param})" if record.param else ""
    parts.append(f"{record.error}{param}" if outcome == "error" else outcome)
    return " | ".join(parts)


def _describe_prompt(record: RequestRecord) -> str:
    text = f"prompt {record.prompt}, cached {record.cached or 0}"
    if record.reuse:
        text += f" ({record.reuse})"
    if record.differs_at is not None:
        text += f", differs at {record.differs_at}"
    return text


def _describe_thinking(record: RequestRecord) -> str:
    if not record.thinking:
        return "thinking off"
    text = f"thinking {record.effort or 'on'}"
    return text if record.budget is None else f"{text}, budget {record.budget}"


def _describe_answer(record: RequestRecord) -> str:
    tokens, drafted = record.sum_of("completion"), record.sum_of("drafted")
    text = f"answer {tokens}, reasoning {record.sum_of('reasoning')}"
    decode = max(done.timings.decode for done in record.finished)
    if decode > 0:
        intervals = sum(max(done.usage.completion - 1, 0) for done in record.finished)
        text += f", {intervals / decode:.1f} tok/s"
    if drafted:
        text += f", accepted {record.sum_of('accepted') / drafted:.0%}"
    return text
