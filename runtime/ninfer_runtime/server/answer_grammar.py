"""What an answer must match, of what a request says of its form and of the tools it may call."""

from __future__ import annotations

import json

from ninfer_formats.errors import NinferError
from ninfer_runtime.frontend.tool_calls.forcing import AUTO, REQUIRED, ToolChoice, force_calls
from ninfer_runtime.frontend.tool_calls.tool_set import ToolSet
from ninfer_runtime.server.api_error import invalid
from ninfer_runtime.server.engine_process.grammar import BLANK
from ninfer_runtime.server.requests import Constraint

# Kinds of constraints beside which tools may still be called.
_JOINED = ("json_object", "json_schema", "regex")


def choose_constraint(
    wanted: Constraint | None, tools: ToolSet, choice: ToolChoice, parallel: bool
) -> Constraint | None:
    """Return the constraint of an answer. With tools that may be called, an answer of a stated form
    has that form or calls tools; calls that are asked for leave no room for another form.

    ApiError 400 when both a call and a form are asked for.
    """
    if wanted is not None and tools and choice.mode == AUTO and wanted.kind in _JOINED:
        calls = force_calls(tools, ToolChoice(REQUIRED, choice.names), parallel)
        if calls is not None:
            calls = calls.replace("start:", "calls:", 1)
            text = f"start: calls | answer\n{_write_rule(wanted)}\n{calls}"
            return Constraint("lark", text, wanted.param)
    forced = force_calls(tools, choice, parallel)
    if forced is None:
        return wanted
    if wanted is not None:
        message = "tool_choice asks for a call, and another field for a form of the answer"
        raise invalid(message, "tool_choice", "invalid_value")
    return Constraint("lark", forced, "tools")


def _write_rule(wanted: Constraint) -> str:
    if wanted.kind == "regex":
        import llguidance

        return f"answer: /{llguidance.regex_to_lark(wanted.text)}/"
    try:
        schema = {"type": "object"} if wanted.kind == "json_object" else json.loads(wanted.text)
    except (ValueError, RecursionError) as error:
        raise NinferError(f"the schema is not JSON: {error}") from None
    schema = {} if schema is True else schema
    if isinstance(schema, dict):
        schema = {**schema, "x-guidance": {"whitespace_pattern": BLANK}}
    return f"answer: %json {json.dumps(schema)}"
