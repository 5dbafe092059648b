"""One stretch of tool calls in generated text, from its first tag to its last."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ninfer_runtime.frontend.tool_calls.argument_values import UNREADABLE
from ninfer_runtime.frontend.tool_calls.call_writer import CallWriter
from ninfer_runtime.frontend.tool_calls.json_body import JsonBody, read_call
from ninfer_runtime.frontend.tool_calls.parameter_reader import ParameterReader
from ninfer_runtime.frontend.tool_calls.tags import (
    BROKEN,
    CLOSE_CALL,
    CLOSE_FUNCTION,
    CLOSE_PARAMETER,
    CLOSE_THINK,
    OPEN_CALL,
    OPEN_FUNCTION,
    OPEN_PARAMETER,
    STUB,
    Tag,
)
from ninfer_runtime.frontend.tool_calls.tool_set import ToolSet

_STRAY = (CLOSE_CALL, CLOSE_FUNCTION, CLOSE_PARAMETER, CLOSE_THINK, STUB, BROKEN)


class CallReader:
    """Reads events of a `TagScanner` into a `CallWriter` until one does not belong to the calls.

    `rest` is text of the stretch that belongs to no call, `names` are the functions called. Between
    events it is in one of the states below, which return whether an event is part of the stretch.
    """

    def __init__(self, tools: ToolSet, writer: CallWriter) -> None:
        self._tools, self._writer = tools, writer
        self._state: Callable[[str | Tag], bool] = self._at_opening
        self._name, self._given, self._plain = "", set[str](), True
        self._parameter: ParameterReader | None = None
        self._body: JsonBody | None = None
        self._rest: list[str] = []
        self._blank: list[str] = []
        self.has_rest = False
        self.leftover = ""  # the end of the event that was not taken, if the rest of it was
        self.over = False
        self.names: list[str] = []

    def feed(self, event: str | Tag) -> bool:
        """Take the next event; False when it stands behind the stretch, which is then over."""
        taken = self._state(event)
        self.over = self.over or not taken
        return taken

    @property
    def blank(self) -> str:
        """Blank space behind the last call, or behind a tag that no call followed."""
        return "".join(self._blank)

    @property
    def rest(self) -> str:
        return "".join(self._rest) if self.has_rest else ""

    @property
    def is_settled(self) -> bool:
        """Whether every call is complete, or lacks only closing tags behind its parameters."""
        if self._parameter is not None or self._body is not None:
            return False
        return not self._writer.open or bool(self._given)

    def finish(self, cut: bool) -> None:
        """End with the text. What the model itself ended is closed; what was cut is left open,
        but for a call whose parameters are all there."""
        self.over = True
        if self._parameter is not None:
            if cut:
                self._parameter.cut()
                return
            self._end_parameter()
        if self._body is not None and self._finish_body(cut):
            return
        if self._writer.open and not (cut and self._tools.expects_more(self._name, self._given)):
            self._writer.close()

    # States.

    def _at_opening(self, event: str | Tag) -> bool:
        """Behind `<tool_call>`."""
        if isinstance(event, str):
            text = event.lstrip()
            if text.startswith("{"):
                self._rest += [*self._blank, event[: len(event) - len(text)]]
                return self._begin_body(text, self._in_call_body)
            return self._take_blank(event)
        if event.kind == OPEN_FUNCTION:
            return self._begin_call(event)
        return event.kind in (OPEN_CALL, BROKEN)

    def _in_function(self, event: str | Tag) -> bool:
        """Between the parameters of a function."""
        if isinstance(event, str):
            text = event.lstrip()
            if text.startswith("{") and not self._given and not self.has_rest:
                self._rest.append(event[: len(event) - len(text)])
                return self._begin_body(text, self._in_arguments_body)
            self._keep(event)
            return True
        if event.kind == OPEN_PARAMETER:
            return self._begin_parameter(event)
        if event.kind in (CLOSE_FUNCTION, CLOSE_CALL, OPEN_FUNCTION, OPEN_CALL):
            self._writer.close()
            self._state = self._behind_function
            return True if event.kind == CLOSE_FUNCTION else self._behind_function(event)
        if event.kind not in _STRAY:
            self._keep(event.raw)
        return True

    def _in_parameter(self, event: str | Tag) -> bool:
        parameter = self._parameter
        if parameter is None or parameter.feed(event):
            return True
        self._end_parameter()
        if parameter.closer in (CLOSE_FUNCTION, CLOSE_CALL, OPEN_CALL):
            self._writer.close()
            self._state = self._behind_function
        self.over = parameter.closer == CLOSE_CALL
        if parameter.took_closer:
            return True
        return False if self.over else self._state(event)

    def _behind_function(self, event: str | Tag) -> bool:
        """Behind `</function>`: only another function goes on."""
        if isinstance(event, str):
            return self._take_blank(event)
        if event.kind == OPEN_FUNCTION:
            return self._begin_call(event)
        if event.kind == CLOSE_CALL:
            self.over = True
        return event.kind in _STRAY

    def _in_call_body(self, event: str | Tag) -> bool:
        return self._in_body(event, self._end_call_body)

    def _in_arguments_body(self, event: str | Tag) -> bool:
        return self._in_body(event, self._end_arguments_body)

    # Steps between them.

    def _take_blank(self, text: str) -> bool:
        if text.strip():
            return False
        self._blank.append(text)
        return True

    def _begin_call(self, tag: Tag) -> bool:
        self._blank = []
        self._name, self._given, self._plain = tag.name, set(), tag.plain
        self.names.append(tag.name)
        self._writer.begin(tag.name)
        self._state = self._in_function
        return True

    def _begin_parameter(self, tag: Tag) -> bool:
        self._given.add(tag.name)
        self._parameter = ParameterReader(
            self._tools, self._writer, self._name, tag.name, self._given, self._plain
        )
        self._state = self._in_parameter
        return True

    def _end_parameter(self) -> None:
        if self._parameter is not None:
            self._parameter.close()
        self._parameter = None
        self._state = self._in_function

    def _begin_body(self, text: str, state: Callable[[str | Tag], bool]) -> bool:
        self._body, self._state, self._blank = JsonBody(), state, []
        return state(text)

    def _in_body(self, event: str | Tag, end: Callable[[], None]) -> bool:
        body = self._body
        if body is None:
            return False
        text = event if isinstance(event, str) else event.raw
        if isinstance(event, Tag) and not body.in_text:
            end()
            return self._state(event)
        rest = body.add(text)
        if rest is None:
            return True
        end()
        if not rest or self._state(rest):
            return True
        self.leftover = rest
        return False

    def _end_call_body(self) -> None:
        body, self._body = self._body, None
        self._state = self._behind_function
        call = read_call(body.read()) if body is not None else None
        if call is None:
            self._keep(body.raw if body is not None else "")
            return
        name, arguments = call
        self.names.append(name)
        self._writer.begin(name)
        self._write_values(arguments)
        self._writer.close()

    def _end_arguments_body(self) -> None:
        body, self._body = self._body, None
        self._state = self._in_function
        value = body.read() if body is not None else UNREADABLE
        if isinstance(value, Mapping):
            self._write_values(value)
        elif body is not None:
            self._keep(body.raw)

    def _finish_body(self, cut: bool) -> bool:
        """End with an object unfinished; True when its call stays open."""
        body = self._body
        if not cut or body is None:
            end = self._end_arguments_body if self._writer.open else self._end_call_body
            end()
        elif self._writer.open:
            self._writer.begin_text("")
            self._writer.text(body.raw)
            return True
        else:
            self._keep(body.raw)
        return False

    def _write_values(self, arguments: Mapping[str, Any]) -> None:
        for key, value in arguments.items():
            self._given.add(key)
            self._writer.value(key, json.dumps(value, ensure_ascii=False))

    def _keep(self, text: str) -> None:
        self._rest.append(text)
        self.has_rest = self.has_rest or not text.isspace()
