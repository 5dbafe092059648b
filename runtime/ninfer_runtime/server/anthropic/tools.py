"""Tools of the Messages API: what has an `input_schema` is offered, other servers' own are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, model_validator

from ninfer_runtime.server.api_error import invalid
from ninfer_runtime.server.bodies.field_error import FieldError
from ninfer_runtime.server.bodies.model import Body
from ninfer_runtime.server.bodies.tools import FunctionName
from ninfer_runtime.server.requests import ToolChoice

_MODES = {"auto": "auto", "any": "required", "tool": "named", "none": "none"}


class AnthropicTool(Body):
    """A function with `input_schema`. A tool of another `type` than `custom` may have any fields
    and is not offered to the model."""

    model_config = ConfigDict(extra="allow", strict=True)
    api: ClassVar[str] = "anthropic_tool"
    type: str | None = None
    name: FunctionName | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_foreign(cls, data: Any) -> Any:
        """What is not offered is not looked into."""
        kind = data.get("type") if isinstance(data, Mapping) else None
        return {"type": kind} if isinstance(kind, str) and kind != "custom" else data

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if not self.offered:
            return self
        stray = next(iter(self.model_extra or {}), None)
        if stray is not None:
            raise FieldError("is unknown", "unknown_parameter", stray)
        for name in ("name", "input_schema"):
            if getattr(self, name) is None:
                raise FieldError("is missing", "missing_parameter", name)
        return self

    @property
    def offered(self) -> bool:
        return self.type in (None, "custom")

    def define(self) -> dict[str, Any]:
        """Return the tool in the form of Chat Completions."""
        function = {
            "name": self.name, "description": self.description, "parameters": self.input_schema,
            "strict": self.strict or None,
        }  # fmt: skip
        stated = {name: value for name, value in function.items() if value is not None}
        return {"type": "function", "function": stated}


class AnthropicChoice(Body):
    """Which tools may or must be called; `name` with type `tool`."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if self.type == "tool" and self.name is None:
            raise FieldError("is missing", "missing_parameter", "name")
        if self.type != "tool" and self.name is not None:
            raise FieldError(f"does not belong to type {self.type!r}", inner="name")
        return self


def choose_anthropic(tools: Sequence[AnthropicTool], choice: AnthropicChoice | None) -> ToolChoice:
    """Return the choice in the words of no dialect; ApiError 400 for what is not offered."""
    if choice is None:
        return ToolChoice()
    offered = [tool.name for tool in tools if tool.offered]
    if choice.name is not None and choice.name not in offered:
        message = f"tool_choice.name: {choice.name[:80]!r} is not one of the tools"
        raise invalid(message, "tool_choice.name", "invalid_value")
    if choice.type in ("any", "tool") and not offered:
        message = "tool_choice: there are no tools to choose"
        raise invalid(message, "tool_choice", "invalid_value")
    names = () if choice.name is None else (choice.name,)
    return ToolChoice(_MODES[choice.type], names)
