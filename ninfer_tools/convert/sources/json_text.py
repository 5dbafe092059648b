"""JSON files of a checkpoint, read with the bounds that artifacts are read with."""

from __future__ import annotations

from typing import Any

from ninfer_formats.errors import ArtifactError, NinferError
from ninfer_formats.strict_json import parse_json


def read_json_object(raw: bytes, label: str, path: str) -> dict[str, Any]:
    """Return the JSON object in `raw`; raises NinferError that calls it `label`."""
    try:
        value = parse_json(raw)
    except ArtifactError as error:
        # The parser is that of artifact directories and says so.
        what = error.what.replace("directory", label, 1)
        raise NinferError(what, path=path, where=error.where, got=error.got) from None
    if not isinstance(value, dict):
        raise NinferError(f"{label} is not a JSON object", path=path, got=type(value).__name__)
    return value
