"""The settings a server runs with, printed once at its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ninfer_tools.console import format_table
from ninfer_tools.serve_session.options import ServeOptions, option_name


def list_settings(options: ServeOptions, effective: Mapping[str, Any], keys: int) -> dict[str, Any]:
    """Return every option by its name: what is `effective` (by field) goes before what was asked
    for, and of keys only their number is said."""
    found: dict[str, Any] = {}
    for item in fields(ServeOptions):
        value = effective.get(item.name, getattr(options, item.name))
        if item.metadata["secret"]:
            value = f"{keys} (not shown)" if keys else None
        found[option_name(item.name)] = str(value) if isinstance(value, Path) else value
    return found


def format_settings(artifact: str, settings: Mapping[str, Any]) -> str:
    """Return a line for every setting."""
    unset = {option_name(item.name): item.metadata["unset"] for item in fields(ServeOptions)}
    rows = [("artifact", artifact)]
    rows += [(name, _show(value, unset[name] or "none")) for name, value in settings.items()]
    return "settings:\n" + format_table(rows)


def _show(value: Any, unset: str) -> str:
    if value is None or value in ("", ()):
        return unset
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return " ".join(value) if isinstance(value, tuple) else str(value)
