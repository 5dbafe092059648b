"""Frontend files of an artifact: text and JSON by role."""

from __future__ import annotations

import json
from typing import Any

from ninfer_formats.reader import Artifact
from ninfer_runtime.errors import StartupError


def read_text(artifact: Artifact, role: str) -> str | None:
    """Return the stored file with this role, None without one; StartupError if not UTF-8."""
    component = next((name for name, stored in artifact.resources if stored == role), None)
    if component is None:
        return None
    try:
        return artifact.resource(role, component).decode()
    except UnicodeDecodeError as error:
        raise StartupError(
            f"file is not UTF-8 at byte {error.start}", path=artifact.path, where=role
        ) from None


def read_json(artifact: Artifact, role: str) -> dict[str, Any] | None:
    """Return the stored JSON object with this role, None without one; StartupError if broken."""
    text = read_text(artifact, role)
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StartupError(f"file is not JSON: {error}", path=artifact.path, where=role) from None
    if not isinstance(value, dict):
        raise StartupError("file is not a JSON object", path=artifact.path, where=role)
    return value
