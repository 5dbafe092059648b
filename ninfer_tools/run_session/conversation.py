"""Messages, images and videos from the command line and from files."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_formats.errors import UsageError

if TYPE_CHECKING:
    from ninfer_runtime.frontend.media import MediaReader, Medium
    from ninfer_runtime.frontend.messages import MediaPart

Message = dict[str, Any]
_PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def make_message(text: str, images: Sequence[Path], videos: Sequence[Path]) -> Message:
    """Return a user message: images, videos, then the text."""
    if not images and not videos:
        return {"role": "user", "content": text}
    parts = [{"type": "image", "image": str(path)} for path in images]
    parts += [{"type": "video", "video": str(path)} for path in videos]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def read_messages(path: Path) -> tuple[list[Message], list[Message] | None]:
    """Return messages and tools of a file: a list of messages, or an object with both."""
    try:
        record = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot open: {error.strerror}", path=path) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"file is not JSON: {error}", path=path) from None
    messages = record.get("messages") if isinstance(record, dict) else record
    tools = record.get("tools") if isinstance(record, dict) else None
    if not isinstance(messages, list):
        raise UsageError("file holds no list of messages", path=path)
    if tools is not None and not isinstance(tools, list):
        raise UsageError("tools are not a list", path=path)
    return messages, tools


def read_media(
    parts: Sequence[MediaPart],
    reader: MediaReader,
    folder: Path,
    spare: Mapping[str, Sequence[Path]],
) -> list[Medium]:
    """Return the images and videos of a conversation.

    Relative names are in `folder`; parts that name no file take those of `spare`, by kind, in
    turn.
    """
    remaining = {kind: list(paths) for kind, paths in spare.items()}
    media = []
    for part in parts:
        source = part.source
        if source is None:
            if not remaining.get(part.kind):
                raise UsageError(
                    f"{part.kind} names no file", where=part.where,
                    remedy=f"give one with --{part.kind}",
                )  # fmt: skip
            source = str(remaining[part.kind].pop(0).absolute())
        media.append(_read_part(part, source, reader, folder))
    for paths in remaining.values():
        if paths:
            raise UsageError("no part of the messages takes this file", path=paths[0])
    return media


def _read_part(part: MediaPart, source: str, reader: MediaReader, folder: Path) -> Medium:
    if source.startswith("data:"):
        data = _decode_uri(source, part.where)
        return _pick(part.kind, reader)(data, part.where)
    if "://" in source and not source.startswith("file://"):
        raise UsageError("addresses are not fetched", where=part.where, got=source,
                         want="a file or a data: URI")  # fmt: skip
    path = folder / source.removeprefix("file://")
    if part.kind == "video" and path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in _PICTURES)
        return reader.read_pictures([_read_file(file, reader) for file in files], str(path))
    return _pick(part.kind, reader)(_read_file(path, reader), str(path))


def _pick(kind: str, reader: MediaReader) -> Any:
    return reader.read_image if kind == "image" else reader.read_video


def _read_file(path: Path, reader: MediaReader) -> bytes:
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise UsageError("not a regular file", path=path)
        if size > reader.limits.file_bytes:
            raise UsageError("file is too large", path=path, got=f"{size} bytes",
                             want=f"at most {reader.limits.file_bytes}")  # fmt: skip
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot open: {reason}", path=path) from None


def _decode_uri(source: str, where: str) -> bytes:
    head, comma, body = source.partition(",")
    if not comma or not head.endswith(";base64"):
        raise UsageError("data URI is not base64", where=where, got=head)
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"data URI is not base64: {error}", where=where) from None
