"""The artifact a command works on: a file, or a made-up one named by a specification."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_formats.errors import UsageError

if TYPE_CHECKING:
    from ninfer_formats.reader import Artifact


def require_one(file: Path | None, synthetic: str | None) -> None:
    """Raise UsageError unless exactly one of FILE and --synthetic is given."""
    if file is None and synthetic is None:
        raise UsageError("no artifact given", want="FILE or --synthetic SPEC")
    if file is not None and synthetic is not None:
        raise UsageError("two artifacts given", got=f"{file} and --synthetic", want="one of them")


def open_source(file: Path | None, synthetic: str | None, max_directory_bytes: int) -> Artifact:
    """Open FILE, or the synthetic artifact of a specification, drawn as far as it is read.

    Raises UsageError unless exactly one of both is given, and what `open_artifact` raises.
    """
    require_one(file, synthetic)
    if file is not None:
        from ninfer_formats.reader import open_artifact

        return open_artifact(file, max_directory_bytes=max_directory_bytes)
    from ninfer_tools.synthetic.artifact import open_synthetic

    return open_synthetic(synthetic or "")
