"""One argument of a call while its text comes."""

from __future__ import annotations

from ninfer_runtime.frontend.tool_calls.argument_values import (
    UNREADABLE,
    convert_argument,
    read_literal,
)
from ninfer_runtime.frontend.tool_calls.call_writer import CallWriter
from ninfer_runtime.frontend.tool_calls.schema_kinds import kind_of

_STREAMED, _UNDECIDED, _GATHERED = "streamed", "undecided", "gathered"
_NULLS = ("null", "None")
_LONGEST_NULL = 4


class ParameterValue:
    """Writes a text as it comes where only a text is possible, everything else at its end.

    One line end on either side frames the value and is not part of a text.
    """

    def __init__(self, writer: CallWriter, key: str, kinds: frozenset[str] | None) -> None:
        self._writer, self._key, self._kinds = writer, key, kinds
        self._parts: list[str] = []
        self._word = ""
        self._held_line_end = False
        self._begun = False
        self._ends_line = False
        self.inline = True
        self._mode = _GATHERED
        if kinds is not None and "string" in kinds:
            self._mode = _UNDECIDED
            if kinds.isdisjoint({"null", "object", "array"}):
                self._stream()

    @property
    def at_line_start(self) -> bool:
        """Whether a tag here stands where the model was taught to put one."""
        return self.inline or self._ends_line

    def add(self, text: str) -> None:
        if not text:
            return
        if not self._begun:
            self._begun, self.inline = True, not text.startswith("\n")
            self._ends_line = not self.inline
            text = text.removeprefix("\n")
            if not text:
                return
        self._ends_line = text.endswith("\n")
        if self._mode == _STREAMED:
            self._write(text)
        else:
            self._parts.append(text)
            if self._mode == _UNDECIDED:
                self._decide(text)

    def close(self) -> None:
        if self._mode == _STREAMED:
            self._writer.end_text()
            return
        text = "".join(self._parts)
        if self._mode == _UNDECIDED or self._admits_text():
            self._close_either(text)
        elif (value := convert_argument(text, self._kinds)) is not None:
            self._writer.value(self._key, value)

    def cut(self) -> None:
        """Write what there is of the value and leave it open: it is no JSON then."""
        if self._mode != _STREAMED:
            self._stream()
        if self._held_line_end:
            self._writer.text("\n")

    def _admits_text(self) -> bool:
        return self._kinds is not None and "string" in self._kinds

    def _stream(self) -> None:
        self._mode = _STREAMED
        self._writer.begin_text(self._key)
        self._write("".join(self._parts))
        self._parts = []

    def _write(self, text: str) -> None:
        if not text:
            return
        if self._held_line_end:
            text = "\n" + text
        self._held_line_end = text.endswith("\n")
        self._writer.text(text[:-1] if self._held_line_end else text)

    def _decide(self, text: str) -> None:
        """Look at the first characters: they say whether it may be anything but a text."""
        if len(self._word) >= _LONGEST_NULL and text.strip():
            self._stream()
            return
        self._word = self._word + (text if self._word else text.lstrip())[:_LONGEST_NULL]
        kinds, word = self._kinds or frozenset(), self._word.rstrip()
        if not word:
            return
        if (word[0] == "{" and "object" in kinds) or (word[0] == "[" and "array" in kinds):
            self._mode = _GATHERED
        elif "null" not in kinds or not any(null.startswith(word) for null in _NULLS):
            self._stream()

    def _close_either(self, text: str) -> None:
        kinds = self._kinds or frozenset()
        if text.strip() in _NULLS and "null" in kinds:
            self._writer.value(self._key, "null")
            return
        value = read_literal(text.strip()) if self._mode == _GATHERED else UNREADABLE
        if value is not UNREADABLE and kind_of(value) in kinds - {"string"}:
            converted = convert_argument(text, kinds - {"string"})
            self._writer.value(self._key, converted or "null")
            return
        self._stream()
        self._writer.end_text()
