"""Bodies of POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ninfer_runtime.server.anthropic.blocks import AnthropicMessage, SystemBlock
from ninfer_runtime.server.anthropic.tools import AnthropicChoice, AnthropicTool
from ninfer_runtime.server.bodies.field_error import FieldError
from ninfer_runtime.server.bodies.model import Body, Count
from ninfer_runtime.server.bodies.sampling import MOST_STOPS, Drawn, MaxTokens, Stop
from ninfer_runtime.server.requests import Constraint, ThinkingFields

Label = Annotated[str, Field(min_length=1)]
OMITTED = "omitted"


class ThinkingConfig(Body):
    """`enabled` has a budget, `adaptive` leaves it to the server. With `display` omitted the
    thinking is not shown, only kept in its signature."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Count | None = None
    display: Literal["summarized", "omitted"] | None = None

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        if self.type == "enabled" and self.budget_tokens is None:
            raise FieldError("is missing", "missing_parameter", "budget_tokens")
        if self.type != "enabled" and self.budget_tokens is not None:
            raise FieldError(f"does not go with type {self.type!r}", inner="budget_tokens")
        return self


class OutputFormat(Body):
    """The JSON schema the answer matches."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Body):
    """`effort` of the thinking and `format` of the answer."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class AnthropicBody(Drawn):
    """A conversation to go on with. `model` may be any label. A last message of the assistant
    that is only text is the begin of the answer."""

    api: ClassVar[str] = "anthropic"
    model: Label
    messages: Annotated[list[AnthropicMessage], Field(min_length=1)]
    system: str | list[SystemBlock] | None = None
    max_tokens: Annotated[MaxTokens, Field(ge=1)] | None = None
    stop_sequences: Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    stream: bool | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: AnthropicChoice | None = None
    container: None = None
    mcp_servers: Annotated[list[None], Field(max_length=0)] | None = None

    @model_validator(mode="after")
    def _check_format(self) -> Self:
        inner = self.output_config and self.output_config.format
        if inner is not None and self.output_format is not None:
            raise FieldError("is there twice, also as output_config.format", inner="output_format")
        return self

    @property
    def omits_thinking(self) -> bool:
        return self.thinking is not None and self.thinking.display == OMITTED

    def choose_thinking(self) -> ThinkingFields:
        """Return what is said of thinking. Effort without a switch is on, as everywhere."""
        effort = self.output_config.effort if self.output_config else None
        if self.thinking is None:
            return ThinkingFields(None if effort is None else True, effort)
        if self.thinking.type == "disabled":
            return ThinkingFields(False)
        return ThinkingFields(True, effort, self.thinking.budget_tokens)

    def choose_constraint(self) -> Constraint | None:
        if self.output_format is not None:
            return _constrain(self.output_format, "output_format")
        inner = self.output_config and self.output_config.format
        return _constrain(inner, "output_config.format") if inner else None


class CountTokensBody(AnthropicBody):
    """A body of /v1/messages; what does not make the prompt is checked and not used."""


def _constrain(format: OutputFormat, param: str) -> Constraint:
    return Constraint("json_schema", json.dumps(format.schema_), param)
