"""Messages, images and videos from the command line and from files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

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
    if source[:5].lower() == "data:":
        data = _decode_uri(source, part.where)
        return _pick(part.kind, reader)(data, part.where)
    path = folder / _local_name(source, part.where)
    if part.kind == "video" and path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in _PICTURES)
        return reader.read_pictures([_read_file(file, reader) for file in files], str(path))
    return _pick(part.kind, reader)(_read_file(path, reader), str(path))


def _local_name(source: str, where: str) -> str:
    """Return the path that a file: address names; a name that is no address stays."""
    scheme, mark, rest = source.partition("://")
    if not mark:
        return source
    host, slash, name = rest.partition("/")
    if scheme.lower() != "file" or host.lower() not in ("", "localhost"):
        raise UsageError("addresses are not fetched", where=where, got=source,
                         want="a file or a data: URI")  # fmt: skip
    return unquote(slash + name)


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
    if not comma or not head.lower().endswith(";base64"):
        raise UsageError("data URI is not base64", where=where, got=head)
    try:
        return base64.b64decode("".join(unquote(body).split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"data URI is not base64: {error}", where=where) from None
