"""From messages of the Messages API to those of Chat Completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ninfer_runtime.server.anthropic.blocks import AnthropicMessage, Block, SystemBlock
from ninfer_runtime.server.sealed_text import unseal

_BILLING = "x-anthropic-billing-header:"
_FAULT = "Error:"


@dataclass
class AnthropicTalk:
    """`messages` have the form of Chat Completions; `places` are the client's names of theirs."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)

    def add_system(self, system: str | Sequence[SystemBlock] | None) -> None:
        """Append the system's text. A first block that is a client's bill is not for the model:
        it changes with every request, and would spoil every prefix."""
        if isinstance(system, str):
            self._open({"role": "system", "content": system}, "system")
            return
        for i, block in enumerate(system or ()):
            if i > 0 or not block.text.startswith(_BILLING):
                self._open({"role": "system", "content": block.text}, f"system[{i}]")

    def add(self, message: AnthropicMessage, place: str) -> None:
        content = message.content
        if isinstance(content, str):
            self._open({"role": message.role, "content": content}, place)
        elif message.role == "assistant":
            self._answer(content, place)
        else:
            self._ask(message.role, content, place)

    def _open(self, message: dict[str, Any], place: str) -> dict[str, Any]:
        self.places[f"messages[{len(self.messages)}]"] = place
        self.messages.append(message)
        return message

    def _ask(self, role: str, blocks: Sequence[Block], place: str) -> None:
        """Results are messages of their own; what stands between them is one each."""
        open_parts: list[dict[str, Any]] | None = None
        for i, block in enumerate(blocks):
            here = f"{place}.content[{i}]"
            if block.type == "tool_result":
                self._report(block, here)
                open_parts = None
                continue
            if open_parts is None:
                open_parts = []
                self._open({"role": role, "content": open_parts}, place)
            self._name_part(len(open_parts), here)
            open_parts.append(_convert(block))
        if not blocks:
            self._open({"role": role, "content": ""}, place)

    def _report(self, block: Block, place: str) -> None:
        result: dict[str, Any] = {"role": "tool", "tool_call_id": block.tool_use_id}
        self._open(result, place)
        if not isinstance(block.content, list):
            text = block.content or ""
            result["content"] = f"{_FAULT} {text}".rstrip() if block.is_error else text
            return
        parts = [{"type": "text", "text": f"{_FAULT} "}] if block.is_error else []
        for i, inner in enumerate(block.content):
            self._name_part(len(parts), f"{place}.content[{i}]")
            parts.append(_convert(inner))
        result["content"] = parts

    def _answer(self, blocks: Sequence[Block], place: str) -> None:
        turn = self._open({"role": "assistant"}, place)
        number = len(self.messages) - 1
        parts, thoughts, calls = [], [], []
        for i, block in enumerate(blocks):
            here = f"{place}.content[{i}]"
            if block.type == "tool_use":
                self.places[f"messages[{number}].tool_calls[{len(calls)}]"] = here
                function = {"name": block.name, "arguments": block.input}
                calls.append({"id": block.id, "type": "function", "function": function})
            elif block.type in ("thinking", "redacted_thinking"):
                thoughts.append(block.thinking or unseal(block.signature or block.data) or "")
            else:
                self._name_part(len(parts), here)
                parts.append(_convert(block))
        if any(thoughts):
            turn["reasoning_content"] = "".join(thoughts)
        if calls:
            turn["tool_calls"] = calls
        if parts or not calls:
            turn["content"] = parts or ""

    def _name_part(self, index: int, place: str) -> None:
        self.places[f"messages[{len(self.messages) - 1}].content[{index}]"] = place

    def take_prefill(self) -> str | None:
        """Take a last message of the assistant that is only text; it begins the answer."""
        last = self.messages[-1]
        if last["role"] != "assistant" or set(last) != {"role", "content"}:
            return None
        content = last["content"]
        if isinstance(content, list):
            if any(part["type"] != "text" for part in content):
                return None
            content = "".join(part["text"] for part in content)
        self.messages.pop()
        return content or None


def _convert(block: Block) -> dict[str, Any]:
    if block.source is None:
        return {"type": "text", "text": block.text}
    kind = f"{block.type}_url"
    return {"type": kind, kind: {"url": block.source.address()}}
