"""Messages of a conversation: checked, and in the one form chat templates read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.message_content import (
    IMAGE,
    VIDEO,
    MediaPart,
    list_content_media,
    prepare_content,
    take_reasoning,
)
from ninfer_runtime.frontend.output_parser import THINK_END, THINK_START
from ninfer_runtime.frontend.tool_calls.call_history import prepare_calls, prepare_function_call

__all__ = ["IMAGE", "VIDEO", "MediaPart", "list_media", "prepare_messages"]

_REASONING = ("reasoning_content", "thinking", "reasoning")
_ROLES = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant",
    "tool": "tool", "function": "tool",
}  # fmt: skip
_RESULT = ("<tool_response>", "</tool_response>")


def prepare_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages as templates see them.

    Roles are system, user, assistant and tool; one system message stands first and has the texts
    of all; arguments of calls are objects, reasoning is `reasoning_content`, and files are not
    there any more. RequestError says which message is not one.
    """
    if not messages:
        raise RequestError("there are no messages", where="messages")
    prepared = [_prepare(message, f"messages[{i}]") for i, message in enumerate(messages)]
    systems = [message for message in prepared if message["role"] == "system"]
    talk = [message for message in prepared if message["role"] != "system"]
    if not talk:
        raise RequestError("need at least one user message", where="messages")
    if not any(_asks(message) for message in talk):
        # Templates look for the turn of the user that the answer is to, and some insist on one.
        talk.insert(0, {"role": "user", "content": ""})
    return [*_merge(systems), *talk]


def list_media(messages: Sequence[Mapping[str, Any]]) -> list[MediaPart]:
    """Return images and videos in the order of the conversation."""
    return [
        part
        for i, message in enumerate(messages)
        if isinstance(message, Mapping)
        for part in list_content_media(message.get("content"), f"messages[{i}]")
    ]


def _prepare(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError("message is not an object", where=where, got=type(message).__name__)
    kept = {key: value for key, value in message.items() if value is not None}
    role = kept.get("role")
    if not isinstance(role, str):
        raise RequestError("message has no role", where=where, got=role)
    if role not in _ROLES:
        raise RequestError(
            "message has an unknown role", where=f"{where}.role", got=role, want=", ".join(_ROLES)
        )
    kept["role"] = _ROLES[role]
    if role == "assistant":
        _prepare_answer(kept, where)
    if "content" in kept:
        kept["content"] = prepare_content(kept["content"], where)
    if kept["role"] == "system" and not isinstance(kept.get("content", ""), str):
        raise RequestError(f"a {role} message takes text only", where=where)
    return kept


def _prepare_answer(kept: dict[str, Any], where: str) -> None:
    """Give the parts of an earlier answer their one place each."""
    content, thought = take_reasoning(kept.get("content"))
    if thought is not None:
        kept["content"] = content
    reasoning = next((kept[name] for name in _REASONING if name in kept), thought)
    if reasoning is None and isinstance(content, str):
        reasoning = _find_reasoning(content)
    if reasoning is not None:
        if not isinstance(reasoning, str):
            raise RequestError("reasoning is not text", where=where, got=type(reasoning).__name__)
        # Under both names: that is what templates of the family and of others look for.
        kept["thinking"] = kept.get("thinking", reasoning)
        kept["reasoning_content"] = reasoning
    if "function_call" in kept:
        calls = prepare_function_call(kept.pop("function_call"), where)
        kept.setdefault("tool_calls", calls)
    if "tool_calls" in kept:
        kept["tool_calls"] = prepare_calls(kept["tool_calls"], where)


def _find_reasoning(content: str) -> str | None:
    """Return "" for an answer that only speaks of the mark: templates would take what stands
    before it for reasoning, and drop it."""
    opens = content.lstrip().startswith(THINK_START)
    return "" if THINK_END in content and not opens else None


def _asks(message: Mapping[str, Any]) -> bool:
    """Whether a message is a turn of the user, and not a result of a tool in its clothes."""
    if message["role"] != "user":
        return False
    content = message.get("content")
    text = content.strip() if isinstance(content, str) else ""
    return not (text.startswith(_RESULT[0]) and text.endswith(_RESULT[1]))


def _merge(systems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one message with the texts of all, in order, a blank line between them."""
    if len(systems) <= 1:
        return systems
    texts = [message.get("content", "").strip() for message in systems]
    return [{"role": "system", "content": "\n\n".join(text for text in texts if text)}]
