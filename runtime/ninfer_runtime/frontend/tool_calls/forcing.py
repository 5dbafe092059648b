"""Which calls an answer may or must make, as a grammar of the calls' markup."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.tool_calls.schema_kinds import declared_properties
from ninfer_runtime.frontend.tool_calls.tool_set import Tool, ToolSet

AUTO, NONE, REQUIRED, NAMED = "auto", "none", "required", "named"
# What ends a value, so that a value that is text cannot hold it. The lexer takes the longest match:
# a text and what ends it are one terminal.
_ENDS = (
    "<\\/?parameter", "<\\/?param[ =>]", "\\n<\\/function", "\\n<\\/tool_call", "\\n<function",
    "\\n<tool_call",
)  # fmt: skip
_TEXT = f'TEXT: (/(?s:.*)/ & ~/(?s:.*)({"|".join(_ENDS)})(?s:.*)/) "\\n</parameter>\\n"'
_BEGIN = "<tool_call>\n<function="
_FREE = "/(?s:.*)/ & ~/(?s:.*)(<tool_call>|<function[ =]|<invoke[ =])(?s:.*)/"
_END = '"\\n</parameter>\\n"'
_NAME = "NAME: /[A-Za-z0-9_.-]{1,64}/"


@dataclass(frozen=True)
class ToolChoice:
    """`mode` is `auto`, `none`, `required` or `named`; `names` are the functions that may be
    called, empty for all."""

    mode: str = AUTO
    names: tuple[str, ...] = ()


def offer_tools(tools: ToolSet, choice: ToolChoice) -> ToolSet:
    """Return the tools that the model is told of and may call: none with the choice `none`.

    RequestError naming `tool_choice` for a function that is not among the tools, and for a call
    that is asked for without tools.
    """
    unknown = [name for name in choice.names if name not in tools]
    if unknown:
        raise RequestError(
            "tool_choice names a function that is not among the tools", where="tool_choice",
            got=unknown[0], want=", ".join(list(tools.tools)[:20]) or "tools",
        )  # fmt: skip
    if choice.mode in (REQUIRED, NAMED) and not tools:
        raise RequestError("tool_choice asks for a call, but there are no tools",
                           where="tool_choice", got=choice.mode)  # fmt: skip
    return ToolSet({}) if choice.mode == NONE else tools


def force_calls(tools: ToolSet, choice: ToolChoice, parallel: bool = True) -> str | None:
    """Return the lark grammar an answer must match, None when any will do.

    `required` and `named` make the answer calls alone, one if not `parallel` or named. Otherwise
    there is something to force if only some tools may be called or some are strict.
    """
    allowed = [
        tool for name, tool in tools.tools.items() if not choice.names or name in choice.names
    ]
    forced = choice.mode in (REQUIRED, NAMED)
    strict = any(tool.strict for tool in allowed)
    if choice.mode == NONE or not allowed or not (forced or choice.names or strict):
        return None
    return _Grammar(allowed, typed=forced).write(forced, parallel and choice.mode != NAMED)


class _Grammar:
    def __init__(self, tools: Iterable[Tool], typed: bool) -> None:
        self._tools, self._typed = list(tools), typed
        self._rules: list[str] = []

    def write(self, forced: bool, several: bool) -> str:
        calls = [self._call(i, tool) for i, tool in enumerate(self._tools)]
        more = f' ("\\n" {_quote(_BEGIN)} call)*' if several else ""
        begin = _quote(_BEGIN) if forced else "LEAD"
        start = f"start: {begin} call{more}" + ("" if forced else " | FREE")
        heads = [start, f"call: {' | '.join(calls)}", _TEXT, _NAME]
        heads.append('any: "<parameter=" NAME ">\\n" TEXT')
        if not forced:
            heads += [f"FREE: {_FREE}", f"LEAD: ({_FREE}) {_quote(_BEGIN)}"]
        return "\n".join([*heads, *self._rules]) + "\n"

    def _call(self, i: int, tool: Tool) -> str:
        """Add the rule of calls of one tool and return its name."""
        parameters = self._parameters(i, tool) if self._typed or tool.strict else "any*"
        begin, end = _quote(f"{tool.name}>\n"), _quote("</function>\n</tool_call>")
        self._rules.append(f"call{i}: {begin} {parameters} {end}")
        return f"call{i}"

    def _parameters(self, i: int, tool: Tool) -> str:
        if not tool.kinds:
            closed = isinstance(tool.parameters, Mapping) and (
                "properties" in tool.parameters or "additionalProperties" in tool.parameters
            )
            return "" if closed or tool.strict else "any*"
        parts = []
        for k, (name, kinds) in enumerate(tool.kinds.items()):
            if set(name) & set("<>\n"):
                continue
            rule = f"p{i}_{k}"
            value = self._value(tool, name, kinds)
            opening = _quote(f"<parameter={name}>\n")
            self._rules.append(f"{rule}: {opening} {value}")
            parts.append(rule if name in tool.required else f"{rule}?")
        return " ".join(parts)

    def _value(self, tool: Tool, name: str, kinds: frozenset[str] | None) -> str:
        schema = declared_schema(tool, name)
        texts = _listed_texts(schema)
        if texts:
            return f"({' | '.join(map(_quote, texts))}) {_END}"
        if kinds is None or "string" in kinds or schema is None:
            return "TEXT"
        return f"%json {json.dumps(_prune(schema), ensure_ascii=True)} {_END}"


def declared_schema(tool: Tool, name: str) -> Any:
    """Return the schema of one parameter by itself, with what its references point at."""
    root = tool.parameters
    if not isinstance(root, Mapping) or not tool.typed:
        return None
    schema = declared_properties(root).get(name)
    if not isinstance(schema, Mapping):
        return None
    if '"$ref"' not in json.dumps(schema):
        return schema
    definitions = {key: root[key] for key in ("$defs", "definitions") if key in root}
    return {**definitions, **schema}


def _listed_texts(schema: Any) -> list[str]:
    """Return the texts of an `enum` or `const` that lists nothing else."""
    if not isinstance(schema, Mapping):
        return []
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return []
    return values


def _prune(schema: Any, levels: int = 50) -> Any:
    """Return a schema without what lies deeper than a grammar may nest: anything is right there."""
    if isinstance(schema, Mapping):
        return {key: _prune(value, levels - 1) for key, value in schema.items()} if levels else {}
    if isinstance(schema, list):
        return [_prune(value, levels - 1) for value in schema] if levels else []
    return schema


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
