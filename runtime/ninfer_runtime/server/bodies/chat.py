"""The body of POST /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from ninfer_runtime.server.bodies.constraint import Constrained
from ninfer_runtime.server.bodies.field_error import FieldError
from ninfer_runtime.server.bodies.messages import Message
from ninfer_runtime.server.bodies.model import Body, Integral
from ninfer_runtime.server.bodies.sampling import MaxTokens, Sampled, StreamOptions
from ninfer_runtime.server.bodies.tools import WithTools
from ninfer_runtime.server.requests import AnswerFields, ChatRequest
from ninfer_runtime.server.thinking import join_thinking

Budget = Annotated[int, Field(ge=0, le=2**31 - 1), Integral]


class TemplateFields(Body):
    """Variables of the chat template; other names are refused when the template lacks them."""

    model_config = ConfigDict(extra="allow", strict=True)
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    thinking_budget: Budget | None = None
    preserve_thinking: bool | None = None
    add_vision_id: bool | None = None


_THINKING = ("enable_thinking", "reasoning_effort", "thinking_budget")


class Rendered(WithTools):
    """What makes the prompt of a conversation."""

    model: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)]
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    thinking_budget: Budget | None = None
    chat_template_kwargs: TemplateFields | None = None

    def render_request(self, answer: AnswerFields) -> ChatRequest:
        """Return the request; ApiError 400 for fields about thinking that disagree."""
        kwargs = self.chat_template_kwargs
        variables = kwargs.model_dump(exclude_none=True) if kwargs else {}
        thinking = join_thinking(
            self.reasoning_effort, self.enable_thinking, self.thinking_budget, variables
        )
        return ChatRequest(
            messages=tuple(message.plain() for message in self.messages),
            answer=answer,
            tools=self.plain_tools(),
            tool_choice=self.choose_tools(),
            parallel_calls=self.parallel_tool_calls is not False,
            thinking=thinking,
            template={name: value for name, value in variables.items() if name not in _THINKING},
        )


class ChatBody(Rendered, Sampled, Constrained):
    """A conversation to go on with. `max_completion_tokens` goes before `max_tokens`."""

    api: ClassVar[str] = "chat"
    max_completion_tokens: MaxTokens | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20), Integral] | None = None
    stream_options: StreamOptions | None = None
    modalities: list[Literal["text"]] | None = None
    audio: None = None
    functions: Annotated[list[None], Field(max_length=0)] | None = None
    function_call: None = None
    verbosity: Literal["medium"] | None = None

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise FieldError("needs logprobs: true", inner="top_logprobs")
        if self.stream_options is not None and not self.stream:
            raise FieldError("needs stream: true", inner="stream_options")
        return self

    def request(self) -> ChatRequest:
        """Return the request in the words of no dialect."""
        most = self.max_completion_tokens
        answer = AnswerFields(
            max_tokens=self.max_tokens if most is None else most,
            sampling=self.choose_sampling(),
            stop=self.choose_stops(),
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
            choices=self.n or 1,
            ignore_eos=bool(self.ignore_eos),
            constraint=self.choose_constraint(),
        )
        return self.render_request(answer)
