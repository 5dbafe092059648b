"""One parameter of a call: where its value ends, though values hold any text and models forget
closing tags."""

from __future__ import annotations

from ninfer_runtime.frontend.tool_calls.call_writer import CallWriter
from ninfer_runtime.frontend.tool_calls.nested_markup import NestedMarkup
from ninfer_runtime.frontend.tool_calls.parameter_value import ParameterValue
from ninfer_runtime.frontend.tool_calls.tags import (
    BROKEN,
    CLOSE_CALL,
    CLOSE_FUNCTION,
    CLOSE_PARAMETER,
    CLOSE_THINK,
    FUNCTION_ELEMENT,
    OPEN_CALL,
    OPEN_FUNCTION,
    OPEN_PARAMETER,
    PARAMETER_ELEMENT,
    STUB,
    Tag,
)
from ninfer_runtime.frontend.tool_calls.tool_set import ToolSet

_CLOSERS = (CLOSE_CALL, CLOSE_FUNCTION, CLOSE_PARAMETER)
_CALLS = frozenset({OPEN_CALL, OPEN_FUNCTION})
# What must follow a tag that does not stand where it was taught to, for it to count.
_FOLLOWERS = {
    CLOSE_PARAMETER: _CALLS | {CLOSE_FUNCTION, CLOSE_CALL, OPEN_PARAMETER, CLOSE_THINK},
    CLOSE_FUNCTION: _CALLS | {CLOSE_CALL, CLOSE_THINK},
    CLOSE_CALL: _CALLS | {CLOSE_THINK},
    OPEN_CALL: frozenset({OPEN_FUNCTION}),
}


class ParameterReader:
    """Takes events until the value is over: `feed` is then False, and `closer` the kind of the
    tag that ended it."""

    def __init__(
        self,
        tools: ToolSet,
        writer: CallWriter,
        function: str,
        name: str,
        given: set[str],
        plain: bool,
    ) -> None:
        self._tools, self._function, self._given, self._plain = tools, function, given, plain
        self._value = ParameterValue(writer, name, tools.parameter_kinds(function, name))
        self._nested = NestedMarkup()
        # A tag that may end the value, and the blank space behind it.
        self._candidate: Tag | None = None
        self._blank: list[str] = []
        self._followed = False
        self.closer = ""

    def feed(self, event: str | Tag) -> bool:
        if self._candidate is not None:
            return self._decide(self._candidate, event)
        if isinstance(event, str):
            self._value.add(event)
            return True
        return self._take_tag(event)

    def close(self) -> None:
        self._value.close()

    @property
    def took_closer(self) -> bool:
        """Whether the event that ended it was a closing tag, and not what followed one."""
        return not self._followed and self.closer in _CLOSERS

    def cut(self) -> None:
        self._drop_candidate()
        self._value.cut()

    def _take_tag(self, tag: Tag) -> bool:
        kind = tag.kind
        if kind == BROKEN:
            return True
        if kind in (STUB, CLOSE_THINK) or self._is_nested(tag):
            self._value.add(tag.raw)
            return True
        certain = self._value.at_line_start
        if kind == OPEN_CALL or not certain:
            self._candidate = tag
            return True
        return self._end(tag)

    def _is_nested(self, tag: Tag) -> bool:
        """Whether a tag is part of the text; keeps count of the elements in it."""
        kind, nested = tag.kind, self._nested
        if kind in _CLOSERS:
            return nested.close(kind)
        if kind == OPEN_CALL and not nested:
            return not self._value.at_line_start and self._open(kind)
        if kind == OPEN_FUNCTION and not nested:
            starts = self._value.at_line_start and tag.plain == self._plain
            starts = starts and tag.name in self._tools
            return not starts and self._open(kind)
        if kind == OPEN_PARAMETER and not nested.holds(CLOSE_FUNCTION) and tag.plain:
            return not self._begins_parameter(tag)
        if kind == OPEN_PARAMETER and not self._plain and not nested:
            return not self._begins_parameter(tag)
        if kind in (PARAMETER_ELEMENT, FUNCTION_ELEMENT, OPEN_CALL, OPEN_FUNCTION, OPEN_PARAMETER):
            return self._open(kind)
        return False

    def _begins_parameter(self, tag: Tag) -> bool:
        """Whether the closing tag of this parameter was forgotten before the next one."""
        if not self._value.at_line_start or tag.name in self._given:
            return False
        return self._function not in self._tools or self._tools.declares(self._function, tag.name)

    def _open(self, kind: str) -> bool:
        self._nested.open(kind)
        return True

    def _end(self, tag: Tag) -> bool:
        self.closer = tag.kind
        return False

    def _decide(self, candidate: Tag, event: str | Tag) -> bool:
        if isinstance(event, str):
            text = event.lstrip()
            self._blank.append(event[: len(event) - len(text)])
            if not text:
                return True
            self._drop_candidate()
            return self.feed(text)
        if self._ends(candidate, event):
            self.closer, self._candidate, self._followed = candidate.kind, None, True
            return False
        self._drop_candidate()
        return self.feed(event)

    def _ends(self, candidate: Tag, follower: Tag) -> bool:
        if follower.kind not in _FOLLOWERS.get(candidate.kind, ()):
            return False
        if candidate.kind == OPEN_CALL:
            return follower.name in self._tools
        return follower.kind != OPEN_PARAMETER or follower.plain == self._plain

    def _drop_candidate(self) -> None:
        """Take the tag that did not end the value as part of its text."""
        if self._candidate is None:
            return
        if self._candidate.kind == OPEN_CALL:
            self._nested.open(OPEN_CALL)
        self._value.add(self._candidate.raw + "".join(self._blank))
        self._candidate, self._blank = None, []
