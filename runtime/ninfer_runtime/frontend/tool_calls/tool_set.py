"""The tools of a conversation: checked, and the kinds of their parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.tool_calls.schema_kinds import admitted_kinds, declared_properties

MOST_TOOLS, DEEPEST, LONGEST_NAME = 1024, 200, 128


@dataclass(frozen=True)
class Tool:
    """A function the model may call. `kinds` are the kinds of its parameters by name, None for
    any; `typed` is false where two tools of one name disagree. `parameters` is the schema."""

    name: str
    kinds: Mapping[str, frozenset[str] | None]
    parameters: Any
    strict: bool = False
    typed: bool = True

    @property
    def required(self) -> frozenset[str]:
        names = self.parameters.get("required") if isinstance(self.parameters, Mapping) else None
        return frozenset(name for name in names or () if isinstance(name, str))


@dataclass(frozen=True)
class ToolSet:
    """Tools by name, in the order they were given; `definitions` is what templates render."""

    tools: Mapping[str, Tool]
    definitions: tuple[Mapping[str, Any], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tools)

    def __contains__(self, name: str) -> bool:
        return name in self.tools

    def parameter_kinds(self, name: str, parameter: str) -> frozenset[str] | None:
        """Return the kinds a parameter admits; None for any, and for what is not declared."""
        tool = self.tools.get(name)
        return tool.kinds.get(parameter) if tool is not None and tool.typed else None

    def declares(self, name: str, parameter: str) -> bool:
        tool = self.tools.get(name)
        return tool is not None and parameter in tool.kinds

    def expects_more(self, name: str, given: set[str]) -> bool:
        """Whether a call with the given parameters could have been meant to have others."""
        tool = self.tools.get(name)
        if tool is None or not tool.typed or not tool.kinds:
            return True
        return not given >= tool.kinds.keys()


def read_tools(tools: Sequence[Mapping[str, Any]] | None) -> ToolSet:
    """Return the set of a request's tools, which are functions in the form of Chat Completions.

    None and an empty list are no tools. RequestError names the entry that is wrong.
    """
    if tools is not None and not isinstance(tools, list | tuple):
        raise RequestError("tools is not a list", where="tools", got=type(tools).__name__)
    if len(tools or ()) > MOST_TOOLS:
        raise RequestError("too many tools", where="tools", got=len(tools or ()), want=MOST_TOOLS)
    found: dict[str, Tool] = {}
    for i, definition in enumerate(tools or ()):
        tool = _read_tool(definition, f"tools[{i}]")
        earlier = found.get(tool.name)
        if earlier is not None and earlier.parameters != tool.parameters:
            tool = Tool(tool.name, {**earlier.kinds, **tool.kinds}, None, typed=False)
        found[tool.name] = tool
    return ToolSet(found, tuple(tools or ()))


def _read_tool(definition: Any, where: str) -> Tool:
    if not isinstance(definition, Mapping):
        raise RequestError("tool is not an object", where=where, got=type(definition).__name__)
    kind, function = definition.get("type", "function"), definition.get("function")
    if kind != "function" or not isinstance(function, Mapping):
        raise RequestError(
            "tool is not a function", where=where, got=kind,
            want='{"type": "function", "function": {"name": ..., "parameters": ...}}',
        )  # fmt: skip
    _check_depth(function, f"{where}.function")
    name = _read_name(function.get("name"), f"{where}.function.name")
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, Mapping):
        where = f"{where}.function.parameters"
        raise RequestError("parameters is not a schema", where=where, got=parameters)
    if not isinstance(function.get("description", ""), str | None):
        raise RequestError("description is not text", where=f"{where}.function.description")
    kinds = {
        key: admitted_kinds(schema, parameters)
        for key, schema in declared_properties(parameters).items()
    }
    return Tool(name, kinds, parameters, strict=function.get("strict") is True)


def _read_name(name: Any, where: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise RequestError("function has no name", where=where, got=name)
    if len(name) > LONGEST_NAME or name != name.strip() or set(name) & set("<>\"'\n"):
        raise RequestError(
            "not a name of a function", where=where, got=name[:LONGEST_NAME],
            want=f"at most {LONGEST_NAME} characters, no quotes, angle brackets or line ends",
        )  # fmt: skip
    return name


def _check_depth(value: Any, where: str) -> None:
    """Refuse what templates and schemas could not walk through without running out of stack."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > 2 * DEEPEST:
            raise RequestError("schema nests too deeply", where=where, want=f"{DEEPEST} levels")
        inner: list[Any] = []
        for item in level:
            if isinstance(item, Mapping):
                inner += item.values()
            elif isinstance(item, list | tuple):
                inner += item
        level = [item for item in inner if isinstance(item, Mapping | list | tuple)]
