"""Bodies of POST /v1/responses and /v1/responses/input_tokens."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ninfer_runtime.server.bodies.chat import Budget, TemplateFields
from ninfer_runtime.server.bodies.field_error import FieldError
from ninfer_runtime.server.bodies.model import Body, Integral
from ninfer_runtime.server.bodies.sampling import Drawn, MaxTokens
from ninfer_runtime.server.requests import Constraint
from ninfer_runtime.server.responses.input_items import InputItem
from ninfer_runtime.server.responses.tools import ResponseChoice, ResponseTool

SEALED, SCORES = "reasoning.encrypted_content", "message.output_text.logprobs"
_INCLUDED = Literal[
    "reasoning.encrypted_content", "message.output_text.logprobs", "message.input_image.image_url",
    "file_search_call.results", "web_search_call.results", "web_search_call.action.sources",
    "computer_call_output.output.image_url", "code_interpreter_call.outputs",
]  # fmt: skip
_Summary = Literal["auto", "concise", "detailed"]


class ReasoningFields(Body):
    """`summary`, or its older name, puts the reasoning into a summary as well."""

    api: ClassVar[str] = "reasoning"
    effort: str | None = None
    summary: _Summary | None = None
    generate_summary: _Summary | None = None


class TextFormat(Body):
    """`schema` is kept to whether or not `strict` is set; name and description are not used."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    description: str | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        if self.type == "json_schema" and self.schema_ is None:
            raise FieldError("is missing", "missing_parameter", "schema")
        if self.type != "json_schema" and self.schema_ is not None:
            raise FieldError(f"does not go with type {self.type!r}", inner="schema")
        return self


class TextFields(Body):
    """What the text of the answer must match."""

    api: ClassVar[str] = "text"
    format: TextFormat | None = None

    def choose(self) -> Constraint | None:
        if self.format is None or self.format.type == "text":
            return None
        if self.format.type == "json_object":
            return Constraint("json_object", param="text.format")
        return Constraint("json_schema", json.dumps(self.format.schema_), "text.format")


class ResponseStreamOptions(Body):
    """`include_obfuscation` has no effect: events are not padded."""

    include_obfuscation: bool | None = None


MetadataName = Annotated[str, Field(max_length=64)]
MetadataText = Annotated[str, Field(max_length=512)]


class ResponseBody(Drawn):
    """A conversation to go on with: items, or one text of the user, behind those of an earlier
    response. `instructions` stand before all of it, and are not those of the next response."""

    api: ClassVar[str] = "responses"
    model: str | None = None
    input: str | list[InputItem] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    metadata: Annotated[dict[MetadataName, MetadataText], Field(max_length=16)] | None = None
    max_output_tokens: Annotated[MaxTokens, Field(ge=1)] | None = None
    reasoning: ReasoningFields | None = None
    enable_thinking: bool | None = None
    thinking_budget: Budget | None = None
    chat_template_kwargs: TemplateFields | None = None
    text: TextFields | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: ResponseChoice | None = None
    parallel_tool_calls: bool | None = None
    include: list[_INCLUDED] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20), Integral] | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    truncation: Literal["disabled"] | None = None
    background: Literal[False] | None = None
    conversation: None = None
    prompt: None = None

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise FieldError("needs stream: true", inner="stream_options")
        if not self.input and self.previous_response_id is None:
            raise FieldError("is missing or empty", "missing_parameter", "input")
        return self

    @property
    def summarised(self) -> bool:
        """Whether the reasoning is wanted as a summary too."""
        found = self.reasoning
        return found is not None and (found.summary or found.generate_summary) is not None

    @property
    def sealed(self) -> bool:
        """Whether the reasoning is wanted in a form that stateless clients send back."""
        return SEALED in (self.include or ())

    @property
    def scores(self) -> int | None:
        """How many of the most likely tokens are wanted beside each, None for no scores."""
        if SCORES in (self.include or ()) or self.top_logprobs:
            return self.top_logprobs or 0
        return None


class InputTokensBody(ResponseBody):
    """A body of /v1/responses; what does not make the prompt is checked and not used."""
