"""The content of one message: text, or parts with images and videos."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ninfer_runtime.errors import RequestError

IMAGE, VIDEO = "image", "video"
_MEDIA_KEYS = {IMAGE: ("image", "image_url", "input_image"), VIDEO: ("video", "video_url")}
_ALL_KEYS = frozenset(key for keys in _MEDIA_KEYS.values() for key in keys)
_TEXT_KEYS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
REASONING_TYPES = ("thinking", "reasoning")
_STAND_IN = "file"


@dataclass(frozen=True)
class MediaPart:
    """One image or video of a conversation; `source` is what the message says of it, maybe None."""

    kind: str
    source: str | None
    where: str


def prepare_content(content: Any, where: str) -> str | list[dict[str, Any]]:
    """Return content as templates read it: one text if all of it is text, else its parts in
    order, files left out. RequestError naming the part that is neither text nor a medium."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise RequestError("content is neither text nor a list of parts", where=where)
    parts = [_prepare_part(part, f"{where}.content[{i}]") for i, part in enumerate(content)]
    if all("text" in part for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def list_content_media(content: Any, where: str) -> Iterator[MediaPart]:
    if not isinstance(content, list | tuple):
        return
    for i, part in enumerate(content):
        kind = _medium_kind(part) if isinstance(part, Mapping) else None
        if kind is not None:
            yield MediaPart(kind, _find_source(part, kind), f"{where}.content[{i}]")


def take_reasoning(content: Any) -> tuple[Any, str | None]:
    """Return content without its parts of reasoning, and their text, None without any."""
    if not isinstance(content, list | tuple):
        return content, None
    thoughts = [part for part in content if _is_reasoning(part)]
    if not thoughts:
        return content, None
    texts = [part.get(part["type"], part.get("text")) for part in thoughts]
    rest = [part for part in content if not _is_reasoning(part)]
    return rest, "".join(text for text in texts if isinstance(text, str))


def _is_reasoning(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in REASONING_TYPES


def _prepare_part(part: Any, where: str) -> dict[str, Any]:
    if not isinstance(part, Mapping):
        raise RequestError("content part is not an object", where=where)
    # Templates only ask whether a part has such a key; files as long as books stay outside.
    if _medium_kind(part) is not None:
        return {key: _STAND_IN if key in _ALL_KEYS else part[key] for key in part}
    key = _TEXT_KEYS.get(part.get("type", "text"))
    if key is None:
        raise RequestError(
            "content part is neither text nor an image or video", where=where,
            got=part.get("type"), want="text, image_url, video_url or refusal",
        )  # fmt: skip
    if not isinstance(part.get(key), str):
        raise RequestError(f"content part has no {key}", where=where, got=part.get(key))
    return {"type": "text", "text": part[key]}


def _medium_kind(part: Mapping[str, Any]) -> str | None:
    return next((kind for kind in _MEDIA_KEYS if _is_medium(part, kind)), None)


def _is_medium(part: Mapping[str, Any], kind: str) -> bool:
    keys = _MEDIA_KEYS[kind]
    if part.get("type") in _TEXT_KEYS:
        return False
    return part.get("type") in keys or any(key in part for key in keys)


def _find_source(part: Mapping[str, Any], kind: str) -> str | None:
    for key in _MEDIA_KEYS[kind]:
        value = part.get(key)
        if isinstance(value, Mapping):
            value = value.get("url")
        if isinstance(value, str):
            return value
    return None
