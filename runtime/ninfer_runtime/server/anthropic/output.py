"""The content of an answer: blocks one behind the other, made of what comes from the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from ninfer_runtime.frontend.tool_calls.call_delta import CallDelta
from ninfer_runtime.server.events import Delta
from ninfer_runtime.server.sealed_text import seal

Event = dict[str, Any]
_TEXT, _THINKING, _CALL = "text", "thinking", "tool_use"
# Clients drop thinking without a signature; nobody checks it.
_SIGNATURE = "ninfer"


@dataclass
class Blocks:
    """`blocks` are those that are done. A whole answer is a stream whose events nobody reads.

    With `omitted` thinking is only in its signature.
    """

    omitted: bool = False
    blocks: list[dict[str, Any]] = field(default_factory=list)
    _block: dict[str, Any] | None = None
    _pieces: list[str] = field(default_factory=list)
    _call: int = -1

    def add(self, delta: Delta) -> Iterator[Event]:
        """Give the events of a delta."""
        if delta.reasoning:
            yield from self._open({"type": _THINKING, "thinking": "", "signature": ""})
            yield from self._grow("thinking_delta", "thinking", delta.reasoning)
        if delta.content:
            yield from self._open({"type": _TEXT, "text": ""})
            yield from self._grow("text_delta", "text", delta.content)
        for piece in delta.calls:
            yield from self._add_call(piece)

    def finish(self) -> Iterator[Event]:
        """Give the last events. An answer of nothing has one empty text."""
        yield from self._close()
        if not self.blocks:
            yield from self._open({"type": _TEXT, "text": ""})
            yield from self._close()

    def _add_call(self, piece: CallDelta) -> Iterator[Event]:
        if self._block is None or self._block["type"] != _CALL or self._call != piece.index:
            yield from self._close()
            self._call = piece.index
            block = {"type": _CALL, "id": piece.id, "name": piece.name, "input": {}}
            yield from self._open(block)
        if piece.arguments:
            yield from self._grow("input_json_delta", "partial_json", piece.arguments)

    def _open(self, block: dict[str, Any]) -> Iterator[Event]:
        """Begin a block unless one of its kind is open."""
        if self._block is not None and self._block["type"] == block["type"]:
            return
        yield from self._close()
        self._block, self._pieces = block, []
        index = len(self.blocks)
        yield {"type": "content_block_start", "index": index, "content_block": dict(block)}

    def _grow(self, kind: str, name: str, text: str) -> Iterator[Event]:
        self._pieces.append(text)
        if kind != "thinking_delta" or not self.omitted:
            yield self._delta(kind, name, text)

    def _close(self) -> Iterator[Event]:
        block = self._block
        if block is None:
            return
        text = "".join(self._pieces)
        if block["type"] == _CALL:
            block["input"] = read_input(text)
        elif block["type"] == _TEXT:
            block["text"] = text
        else:
            block["thinking"] = "" if self.omitted else text
            block["signature"] = seal(text) if self.omitted else _SIGNATURE
            yield self._delta("signature_delta", "signature", block["signature"])
        yield {"type": "content_block_stop", "index": len(self.blocks)}
        self.blocks.append(block)
        self._block = None

    def _delta(self, kind: str, name: str, text: str) -> Event:
        return {
            "type": "content_block_delta", "index": len(self.blocks),
            "delta": {"type": kind, name: text},
        }  # fmt: skip


def read_input(arguments: str) -> dict[str, Any]:
    """Return the arguments of a call; of one that was cut, those that are whole."""
    try:
        value = from_json(arguments or "{}", allow_partial=True)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
