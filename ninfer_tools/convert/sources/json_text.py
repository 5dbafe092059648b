"""Text files of a checkpoint: JSON is read with the bounds that artifacts are read with."""

from __future__ import annotations

from typing import Any

from ninfer_formats.errors import ArtifactError, NinferError
from ninfer_formats.foreign import SNIFF_BYTES, describe_foreign
from ninfer_formats.strict_json import parse_json

# What may begin a text file; everything else that has a name is a file of another kind.
_TEXTS = ("a JSON text", "an unknown file", "a safetensors file")


def read_json_object(raw: bytes, label: str, path: str) -> dict[str, Any]:
    """Return the JSON object in `raw`; raises NinferError that calls it `label`."""
    refuse_foreign(raw, path)
    try:
        value = parse_json(raw)
    except ArtifactError as error:
        # The parser is that of artifact directories and says so.
        what = error.what.replace("directory", label, 1)
        raise NinferError(what, path=path, where=error.where, got=error.got) from None
    if not isinstance(value, dict):
        raise NinferError(f"{label} is not a JSON object", path=path, got=type(value).__name__)
    return value


def refuse_foreign(raw: bytes, path: str) -> None:
    """Raise NinferError for what downloads leave in a text file's place: a git-lfs pointer, …"""
    found, action = describe_foreign(raw[:SNIFF_BYTES], len(raw))
    if found not in _TEXTS:
        raise NinferError("file holds something else", path=path, got=found, remedy=action)
