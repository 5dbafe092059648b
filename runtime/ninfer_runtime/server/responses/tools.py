"""Tools of the Responses API: functions are offered, what only other servers run is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from ninfer_runtime.server.api_error import invalid
from ninfer_runtime.server.bodies.field_error import FieldError
from ninfer_runtime.server.bodies.model import Body
from ninfer_runtime.server.bodies.tools import FunctionName
from ninfer_runtime.server.fields import NO_OPS
from ninfer_runtime.server.requests import ToolChoice

FUNCTION, NAMESPACE = "function", "namespace"
_BETWEEN = "."
_FIELDS = ("name", "description", "parameters", "strict")


class ResponseTool(Body):
    """A function, a namespace of functions, or a tool that the server would have to run. The last
    kind may have any fields and is not offered to the model."""

    model_config = ConfigDict(extra="allow", strict=True)
    api: ClassVar[str] = "response_tool"
    type: Annotated[str, Field(min_length=1)]
    name: FunctionName | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    tools: list[ResponseTool] | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_foreign(cls, data: Any) -> Any:
        """What is not offered is not looked into."""
        kind = data.get("type") if isinstance(data, Mapping) else None
        if isinstance(kind, str) and kind not in (FUNCTION, NAMESPACE):
            return {"type": kind}
        return data

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.type not in (FUNCTION, NAMESPACE):
            return self
        stray = next(iter(self.model_extra or {}), None)
        if stray is not None:
            raise FieldError("is unknown", "unknown_parameter", stray)
        if self.name is None:
            raise FieldError("is missing", "missing_parameter", "name")
        if self.type == FUNCTION and self.tools is not None:
            raise FieldError("does not belong to a function", inner="tools")
        if self.type == NAMESPACE and self.tools is None:
            raise FieldError("is missing", "missing_parameter", "tools")
        return self


class NamedTool(Body):
    """A function by its name, and where it has one by its namespace."""

    type: Literal["function"]
    name: str
    namespace: str | None = None


class AllowedResponseTools(Body):
    """Some of the functions, of which one may or must be called."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[NamedTool]


ResponseChoice = Literal["none", "auto", "required"] | NamedTool | AllowedResponseTools


@dataclass(frozen=True)
class OfferedTools:
    """What the model may call. `definitions` have the form of Chat Completions; `origins` are
    namespace and name by the name the model sees, `places` the client's places of `definitions`."""

    definitions: tuple[dict[str, Any], ...]
    origins: Mapping[str, tuple[str | None, str]]
    places: tuple[str, ...]

    def origin(self, name: str) -> tuple[str | None, str]:
        return self.origins.get(name, (None, name))

    def choose(self, choice: ResponseChoice | None) -> ToolChoice:
        """Return the choice in the words of no dialect; ApiError 400 for what is not offered."""
        match choice:
            case NamedTool():
                found = ToolChoice("named", (join_name(choice.namespace, choice.name),))
            case AllowedResponseTools():
                names = tuple(join_name(tool.namespace, tool.name) for tool in choice.tools)
                found = ToolChoice(choice.mode, names)
            case None:
                found = ToolChoice("auto")
            case str(mode):
                found = ToolChoice(mode)
        unknown = next((name for name in found.names if name not in self.origins), None)
        if unknown is not None:
            message = f"tool_choice: {unknown[:80]!r} is not one of the functions"
            raise invalid(message, "tool_choice", "invalid_value")
        if not self.origins and found.mode in ("required", "named"):
            message = "tool_choice: there are no functions to choose"
            raise invalid(message, "tool_choice", "invalid_value")
        return found


def offer_functions(tools: Sequence[ResponseTool]) -> OfferedTools:
    """Return the functions among `tools`; those of a namespace are called `namespace.name`."""
    definitions, origins, places = [], {}, []
    for place, namespace, tool in _list_functions(tools):
        name = join_name(namespace, tool.name or "")
        if name in origins:
            where = f"{place}.name"
            raise invalid(f"{where}: {name[:80]!r} is there twice", where, "invalid_value")
        origins[name] = (namespace, tool.name or "")
        definitions.append({"type": FUNCTION, "function": _define(tool, name)})
        places.append(place)
    return OfferedTools(tuple(definitions), origins, tuple(places))


def join_name(namespace: str | None, name: str) -> str:
    """Return the name by which the model knows a function."""
    return name if namespace is None else f"{namespace}{_BETWEEN}{name}"


def plain_response_tools(given: Any) -> list[dict[str, Any]]:
    """Return the tools as they were sent, without fields that have no effect."""
    quiet = NO_OPS[ResponseTool.api]
    return [
        {name: value for name, value in tool.items() if name not in quiet} for tool in given or ()
    ]


def _list_functions(
    tools: Sequence[ResponseTool],
) -> Iterator[tuple[str, str | None, ResponseTool]]:
    for i, tool in enumerate(tools):
        if tool.type == FUNCTION:
            yield f"tools[{i}]", None, tool
        elif tool.type == NAMESPACE:
            for j, inner in enumerate(tool.tools or ()):
                if inner.type == FUNCTION:
                    yield f"tools[{i}].tools[{j}]", tool.name, inner


def _define(tool: ResponseTool, name: str) -> dict[str, Any]:
    fields = {field: getattr(tool, field) for field in _FIELDS}
    # `false` and absent are the same to the model, and so is its prompt.
    stated = {field: value for field, value in fields.items() if value not in (None, False)}
    return {**stated, "name": name}
