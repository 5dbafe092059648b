"""Tools, and which of them may or must be called."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ninfer_runtime.server.bodies.field_error import FieldError
from ninfer_runtime.server.bodies.model import Body
from ninfer_runtime.server.fields import NO_OPS
from ninfer_runtime.server.requests import ToolChoice

FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")]


class Function(Body):
    """`parameters` is a JSON schema of an object; with `strict` arguments are made to match it."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    """A function the model may call."""

    api: ClassVar[str] = "tool"
    type: Literal["function"]
    function: Function


class FunctionReference(Body):
    name: str


class ChosenFunction(Body):
    """One function that must be called."""

    type: Literal["function"]
    function: FunctionReference


class AllowedTools(Body):
    mode: Literal["auto", "required"]
    tools: list[ChosenFunction]


class ChosenTools(Body):
    """Some of the functions, of which one may or must be called."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


Choice = Literal["none", "auto", "required"] | ChosenFunction | ChosenTools


class WithTools(Body):
    """Fields of bodies that offer tools."""

    tools: list[Tool] | None = None
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None

    @model_validator(mode="after")
    def _check_choice(self) -> Self:
        known = {tool.function.name for tool in self.tools or ()}
        choice = self.choose_tools()
        if not known and choice.mode in ("required", "named"):
            raise FieldError("there are no tools to choose", inner="tool_choice")
        unknown = [name for name in choice.names if name not in known]
        if unknown:
            raise FieldError(f"{unknown[0][:80]!r} is not one of the tools", inner="tool_choice")
        return self

    def choose_tools(self) -> ToolChoice:
        """Return the choice in the words of no dialect."""
        match self.tool_choice:
            case ChosenFunction(function=function):
                return ToolChoice("named", (function.name,))
            case ChosenTools(allowed_tools=allowed):
                names = tuple(tool.function.name for tool in allowed.tools)
                return ToolChoice(allowed.mode, names)
            case None:
                return ToolChoice("auto")
            case str(mode):
                return ToolChoice(mode)

    def plain_tools(self) -> tuple[dict[str, Any], ...]:
        """Return the tools as mappings, in the client's order of keys."""
        quiet = NO_OPS[Tool.api]
        return tuple(
            {name: value for name, value in tool.items() if name not in quiet}
            for tool in self.given.get("tools") or ()
        )
