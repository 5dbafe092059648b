"""The reasoning of an answer, and the calls that a model makes before it has closed it."""

from __future__ import annotations

from ninfer_runtime.frontend.tool_calls.call_reader import CallReader
from ninfer_runtime.frontend.tool_calls.call_writer import CallPiece, CallWriter
from ninfer_runtime.frontend.tool_calls.tags import OPEN_CALL, OPEN_FUNCTION, Tag, TagScanner
from ninfer_runtime.frontend.tool_calls.text_side import TextSide
from ninfer_runtime.frontend.tool_calls.tool_set import ToolSet

Piece = str | CallPiece


class ReasoningSide:
    """Splits reasoning into its text and complete calls of declared tools. What looks like a call
    is held until it is one; what is only quoted stays text."""

    def __init__(self, tools: ToolSet) -> None:
        self._tools = tools
        self._scanner, self._text = TagScanner(), TextSide()
        self._writer = CallWriter()
        self._reader: CallReader | None = None
        self._raw: list[str] = []
        self._pieces: list[Piece] = []

    def push(self, text: str) -> list[Piece]:
        if not self._tools:
            return [text] if text else []
        for event in self._scanner.push(text):
            self._take(event)
        return self._hand_out()

    def finish(self, cut: bool) -> list[Piece]:
        """End the reasoning; `cut` that neither its mark nor the model ended it."""
        for event in self._scanner.finish():
            self._take(event)
        if self._reader is not None:
            open_call = cut and self._writer.open
            self._end_calls(self._reader.is_settled and not open_call)
        self._pieces.append(self._text.finish())
        return self._hand_out()

    def _take(self, event: str | Tag) -> None:
        if isinstance(event, Tag) and event.kind == OPEN_CALL and self._reader is not None:
            # A quoted beginning does not hide the call behind it.
            self._end_calls(self._reader.is_settled)
        reader = self._reader
        if reader is not None:
            taken = reader.feed(event)
            raw = event if isinstance(event, str) else event.raw
            if taken or reader.leftover:
                self._raw.append(raw[: len(raw) - len(reader.leftover)])
            if reader.over or not self._is_possible():
                self._end_calls(reader.is_settled and self._is_possible())
            if taken:
                return
            event = reader.leftover or event
        if isinstance(event, Tag) and self._opens_call(event):
            self._writer = CallWriter()
            self._reader = CallReader(self._tools, self._writer)
            self._raw = [event.raw]
            if event.kind == OPEN_FUNCTION:
                self._reader.feed(event)
        else:
            self._add(event if isinstance(event, str) else event.raw)

    def _opens_call(self, tag: Tag) -> bool:
        if tag.kind == OPEN_FUNCTION:
            return tag.name in self._tools
        return tag.kind == OPEN_CALL

    def _is_possible(self) -> bool:
        reader = self._reader
        return (
            reader is not None
            and not reader.has_rest
            and all(n in self._tools for n in reader.names)
        )

    def _end_calls(self, settled: bool) -> None:
        reader, raw = self._reader, self._raw
        self._reader, self._raw = None, []
        if reader is None:
            return
        if not settled or not reader.names:
            self._add("".join(raw))
            return
        reader.finish(cut=False)
        self._text.mark()
        self._pieces += self._writer.take()
        self._add(reader.blank)

    def _add(self, text: str) -> None:
        text = self._text.add(text)
        if text:
            self._pieces.append(text)

    def _hand_out(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return [piece for piece in pieces if piece]
