"""Messages of a conversation: checked, and in the form chat templates read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ninfer_runtime.errors import RequestError

_REASONING = ("reasoning_content", "thinking", "reasoning")
IMAGE, VIDEO = "image", "video"
_MEDIA_KEYS = {IMAGE: ("image", "image_url"), VIDEO: ("video", "video_url")}
_ALL_KEYS = frozenset(key for keys in _MEDIA_KEYS.values() for key in keys)
_STAND_IN = "file"


@dataclass(frozen=True)
class MediaPart:
    """One image or video of a conversation; `source` is what the message says of it, maybe None."""

    kind: str
    source: str | None
    where: str


def prepare_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages as templates see them.

    Keys without a value are left out, reasoning is `reasoning_content` under whatever name it
    came, arguments of calls that are JSON text are parsed, and files are not there any more.
    RequestError says which message is not one.
    """
    if not messages:
        raise RequestError("there are no messages")
    return [_prepare(message, f"messages[{i}]") for i, message in enumerate(messages)]


def list_media(messages: Sequence[Mapping[str, Any]]) -> list[MediaPart]:
    """Return images and videos in the order of the conversation."""
    return [
        part
        for i, message in enumerate(messages)
        for part in _message_media(message.get("content"), f"messages[{i}]")
    ]


def _prepare(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError("message is not an object", where=where, got=type(message).__name__)
    kept = {key: value for key, value in message.items() if value is not None}
    if not isinstance(kept.get("role"), str):
        raise RequestError("message has no role", where=where, got=kept.get("role"))
    if "content" in kept:
        kept["content"] = _prepare_content(kept["content"], where)
    reasoning = next((kept[name] for name in _REASONING if name in kept), None)
    if reasoning is not None:
        # Under both names: that is what templates of the family and of others look for.
        kept = {"thinking": reasoning, **kept, "reasoning_content": reasoning}
    if "tool_calls" in kept:
        kept["tool_calls"] = _prepare_calls(kept["tool_calls"], where)
    return kept


def _prepare_content(content: Any, where: str) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError("content is neither text nor a list of parts", where=where)
    for i, part in enumerate(content):
        if not isinstance(part, Mapping):
            raise RequestError("content part is not an object", where=f"{where}.content[{i}]")
    # Templates only ask whether a part has such a key; files as long as books stay outside.
    return [{key: _STAND_IN if key in _ALL_KEYS else part[key] for key in part} for part in content]


def _prepare_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list) or not all(isinstance(call, Mapping) for call in calls):
        raise RequestError("tool_calls is not a list of objects", where=where)
    return [_prepare_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]


def _prepare_call(call: Mapping[str, Any], where: str) -> dict[str, Any]:
    if isinstance(call.get("function"), Mapping):
        return {**call, "function": _prepare_call(call["function"], where)}
    arguments = call.get("arguments")
    if isinstance(arguments, str):
        return {**call, "arguments": _parse_arguments(arguments, where)}
    return dict(call)


def _parse_arguments(text: str, where: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"arguments are not JSON: {error}", where=where) from None
    if not isinstance(value, dict):
        raise RequestError("arguments are not a JSON object", where=where, got=text)
    return value


def _message_media(content: Any, where: str) -> Iterator[MediaPart]:
    if not isinstance(content, list):
        return
    for i, part in enumerate(content):
        kind = next((kind for kind in _MEDIA_KEYS if _is_medium(part, kind)), None)
        if kind is not None:
            yield MediaPart(kind, _find_source(part, kind), f"{where}.content[{i}]")


def _is_medium(part: Mapping[str, Any], kind: str) -> bool:
    keys = _MEDIA_KEYS[kind]
    return part.get("type") in keys or any(key in part for key in keys)


def _find_source(part: Mapping[str, Any], kind: str) -> str | None:
    for key in _MEDIA_KEYS[kind]:
        value = part.get(key)
        if isinstance(value, Mapping):
            value = value.get("url")
        if isinstance(value, str):
            return value
    return None
