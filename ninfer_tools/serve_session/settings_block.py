"""The settings a server runs with, printed once at its start."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ninfer_tools.console import format_table
from ninfer_tools.serve_session.memory_report import MemoryReport, describe_engine
from ninfer_tools.serve_session.options import ServeOptions, option_name


def format_settings(options: ServeOptions, report: MemoryReport, keys: int) -> str:
    """Return every setting on a line; of keys only their number."""
    engine = describe_engine(report)
    rows = [("artifact", report.artifact)]
    for item in fields(ServeOptions):
        if item.metadata["secret"]:
            value: Any = f"{keys} (not shown)" if keys else item.metadata["unset"]
        else:
            value = _show(engine.get(item.name, getattr(options, item.name)), item)
        rows.append((option_name(item.name), value))
    return "settings:\n" + format_table(rows)


def _show(value: Any, item: Any) -> str:
    if value is None or value in ("", ()):
        return item.metadata["unset"] or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(value) if isinstance(value, tuple) else str(value)
