"""From items of the Responses API to the messages of a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ninfer_runtime.server.responses.input_items import CALL, MESSAGE, REASONING, RESULT
from ninfer_runtime.server.responses.tools import join_name
from ninfer_runtime.server.sealed_text import unseal

_MEDIA = {"input_image": "image_url", "input_video": "video_url"}


@dataclass
class Conversation:
    """`messages` have the form of Chat Completions; `places` are the client's names of theirs.

    Reasoning, text and calls that follow each other are one turn of the assistant, as the model
    wrote them.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)

    def add(self, item: Mapping[str, Any], place: str) -> None:
        """Append what an item says. A call that was cut is left out."""
        kind = item["type"]
        if kind == MESSAGE and item["role"] == "assistant":
            self._say(item["content"], place)
        elif kind == MESSAGE:
            content = self._convert(item["content"], place, "content")
            self._open({"role": item["role"], "content": content}, place)
        elif kind == REASONING:
            self._think(read_reasoning(item), place)
        elif kind == CALL and item.get("status") != "incomplete":
            self._call(item, place)
        elif kind == RESULT:
            content = self._convert(item["output"], place, "output")
            result = {"role": "tool", "tool_call_id": item["call_id"], "content": content}
            self._open(result, place)

    def add_text(self, role: str, text: str, place: str) -> None:
        self._open({"role": role, "content": text}, place)

    def _open(self, message: dict[str, Any], place: str) -> dict[str, Any]:
        self.places[f"messages[{len(self.messages)}]"] = place
        self.messages.append(message)
        return message

    def _turn(self, place: str, *, joins: bool) -> dict[str, Any]:
        """Return the assistant's turn that is open, or a new one."""
        if joins:
            return self.messages[-1]
        return self._open({"role": "assistant"}, place)

    @property
    def _last(self) -> Mapping[str, Any] | None:
        last = self.messages[-1] if self.messages else None
        return last if last is not None and last["role"] == "assistant" else None

    def _think(self, text: str, place: str) -> None:
        if not text:
            return
        last = self._last
        turn = self._turn(place, joins=last is not None and set(last) <= _THOUGHT)
        turn["reasoning_content"] = turn.get("reasoning_content", "") + text

    def _say(self, content: str | Sequence[Mapping[str, Any]], place: str) -> None:
        if not isinstance(content, str) and any(part["type"] in _MEDIA for part in content):
            parts = self._convert(content, place, "content")
            self._open({"role": "assistant", "content": parts}, place)
            return
        last = self._last
        joins = last is not None and ("content" not in last or "tool_calls" in last)
        turn = self._turn(place, joins=joins and isinstance((last or {}).get("content", ""), str))
        turn["content"] = turn.get("content", "") + join_text(content)

    def _call(self, item: Mapping[str, Any], place: str) -> None:
        turn = self._turn(place, joins=self._last is not None)
        calls = turn.setdefault("tool_calls", [])
        self.places[f"messages[{len(self.messages) - 1}].tool_calls[{len(calls)}]"] = place
        name = join_name(item.get("namespace"), item["name"])
        function = {"name": name, "arguments": item["arguments"] or "{}"}
        calls.append({"id": item["call_id"], "type": "function", "function": function})

    def _convert(
        self, content: str | Sequence[Mapping[str, Any]], place: str, within: str
    ) -> str | list[dict[str, Any]]:
        if isinstance(content, str):
            return content
        for i in range(len(content)):
            own = f"messages[{len(self.messages)}].content[{i}]"
            self.places[own] = f"{place}.{within}[{i}]" if place.endswith("]") else place
        return [_convert_part(part) for part in content]


_THOUGHT = {"role", "reasoning_content"}


def join_text(content: str | Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a content without media."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or part.get("refusal") or "" for part in content)


def read_reasoning(item: Mapping[str, Any]) -> str:
    """Return the reasoning of an item: the whole one, else what the server has sealed, else its
    summary. What another server has sealed cannot be read."""
    whole = join_text(item.get("content") or "")
    sealed = unseal(item.get("encrypted_content"))
    return whole or sealed or join_text(item.get("summary") or "")


def _convert_part(part: Mapping[str, Any]) -> dict[str, Any]:
    carrier = _MEDIA.get(part["type"])
    if carrier is not None:
        return {"type": carrier, carrier: {"url": part[carrier]}}
    return {"type": "text", "text": join_text([part])}
