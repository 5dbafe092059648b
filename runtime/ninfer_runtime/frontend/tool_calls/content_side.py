"""The answer behind the reasoning: its text without markup, and its calls."""

from __future__ import annotations

from ninfer_runtime.frontend.tool_calls.call_reader import CallReader
from ninfer_runtime.frontend.tool_calls.call_writer import CallPiece, CallWriter
from ninfer_runtime.frontend.tool_calls.nested_markup import NestedMarkup
from ninfer_runtime.frontend.tool_calls.tags import (
    BROKEN,
    CLOSE_CALL,
    CLOSE_FUNCTION,
    CLOSE_PARAMETER,
    FUNCTION_ELEMENT,
    OPEN_CALL,
    OPEN_FUNCTION,
    OPEN_PARAMETER,
    PARAMETER_ELEMENT,
    STUB,
    Tag,
    TagScanner,
    split_tags,
)
from ninfer_runtime.frontend.tool_calls.text_side import SeamGuard, TextSide
from ninfer_runtime.frontend.tool_calls.tool_set import ToolSet

Piece = str | CallPiece


class ContentSide:
    """Splits text into content and pieces of calls, in their order. Without tools there are no
    calls, and tags are taken out all the same."""

    def __init__(self, tools: ToolSet) -> None:
        self._tools = tools
        self._scanner, self._writer = TagScanner(), CallWriter()
        self._text, self._guard = TextSide(), SeamGuard()
        self._elements = NestedMarkup()
        self._reader: CallReader | None = None
        self._pieces: list[Piece] = []

    def push(self, text: str) -> list[Piece]:
        for event in self._scanner.push(text):
            self._take(event)
        return self._hand_out()

    def finish(self, cut: bool) -> list[Piece]:
        for event in self._scanner.finish():
            self._take(event)
        if self._reader is not None:
            self._reader.finish(cut)
            self._text.mark()
            self._end_calls()
        self._emit(self._text.finish())
        self._pieces.append(self._guard.finish())
        return self._hand_out()

    def _take(self, event: str | Tag) -> None:
        reader = self._reader
        if reader is not None:
            taken = reader.feed(event)
            if reader.over:
                self._end_calls()
            if taken:
                return
            event = reader.leftover or event
        if isinstance(event, Tag) and self._tools and self._opens_call(event):
            self._reader = CallReader(self._tools, self._writer)
            if event.kind == OPEN_FUNCTION:
                self._reader.feed(event)
        else:
            self._add(event)

    def _add(self, event: str | Tag) -> None:
        """Take what belongs to no call."""
        if isinstance(event, str):
            self._emit(self._text.add(event))
        elif self._is_text(event):
            self._emit(self._text.add(event.raw))
        else:
            self._guard.seam()

    def _opens_call(self, tag: Tag) -> bool:
        if tag.kind == OPEN_FUNCTION:
            return tag.plain or tag.name in self._tools
        return tag.kind == OPEN_CALL

    def _is_text(self, tag: Tag) -> bool:
        """Whether a tag is of another document that the answer shows."""
        kind = tag.kind
        if kind in (FUNCTION_ELEMENT, PARAMETER_ELEMENT) or not tag.plain:
            self._elements.open(kind)
            return True
        if kind in (CLOSE_FUNCTION, CLOSE_PARAMETER):
            return self._elements.close(kind)
        return kind not in (OPEN_CALL, CLOSE_CALL, OPEN_FUNCTION, OPEN_PARAMETER, STUB, BROKEN)

    def _end_calls(self) -> None:
        reader, self._reader = self._reader, None
        if reader is None:
            return
        self._pieces += self._writer.take()
        self._guard.seam()
        if reader.names:
            self._text.mark()
        for event in split_tags(reader.rest):
            self._add(event)
        self._guard.seam()
        self._emit(self._text.add(reader.blank))

    def _emit(self, text: str) -> None:
        text = self._guard.add(text) if text else ""
        if text:
            self._pieces.append(text)

    def _hand_out(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return [piece for piece in pieces if piece] + self._writer.take()
