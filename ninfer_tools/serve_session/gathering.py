"""Options from the command line and a file, the command line first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninfer_tools.artifact_source import require_one
from ninfer_tools.serve_session.config_file import FILE, SYNTHETIC, read_config
from ninfer_tools.serve_session.options import ServeOptions


@dataclass(frozen=True)
class Called:
    """One of `file` and `synthetic` is the artifact."""

    file: Path | None
    synthetic: str | None
    options: ServeOptions


def gather(
    file: Path | None,
    synthetic: str | None,
    config: Path | None,
    given: Mapping[str, Any],
) -> Called:
    """Return what was asked for; `given` has None for options that the command line leaves out.

    UsageError without an artifact or with two in one place, and what `read_config` raises.
    """
    stated = {} if config is None else read_config(config)
    named = {name: stated.pop(name, None) for name in (FILE, SYNTHETIC)}
    if file is None and synthetic is None:
        file, synthetic = named[FILE], named[SYNTHETIC]
    require_one(file, synthetic)
    for name, value in given.items():
        if value is not None and value != []:
            stated[name] = tuple(value) if isinstance(value, list) else value
    return Called(file, synthetic, ServeOptions(**stated))
