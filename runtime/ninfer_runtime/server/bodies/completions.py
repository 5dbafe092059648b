"""The body of POST /v1/completions."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ninfer_runtime.server.bodies.constraint import Constrained
from ninfer_runtime.server.bodies.field_error import FieldError
from ninfer_runtime.server.bodies.model import Count, Integral
from ninfer_runtime.server.bodies.sampling import Sampled, StreamOptions
from ninfer_runtime.server.requests import AnswerFields, TextRequest

TokenNumber = Annotated[int, Field(ge=0, le=2**31 - 1), Integral]
Tokens = Annotated[list[TokenNumber], Field(min_length=1)]
MOST_PROMPTS = 64


class CompletionBody(Sampled, Constrained):
    """A text, the ids of its tokens, or up to 64 of either, to go on with."""

    api: ClassVar[str] = "completions"
    model: str | None = None
    prompt: (
        str
        | Tokens
        | Annotated[list[Tokens], Field(min_length=1)]
        | Annotated[list[str], Field(min_length=1)]
    )
    echo: bool | None = None
    best_of: Count | None = None
    suffix: Literal[""] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20), Integral] | None = None
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if len(self.list_prompts()) > MOST_PROMPTS:
            raise FieldError(f"want at most {MOST_PROMPTS} prompts", inner="prompt")
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise FieldError("want the same as n: all answers are returned", inner="best_of")
        if self.echo and self.logprobs is not None:
            raise FieldError("prompts have no logprobs: leave out echo or this", inner="logprobs")
        if self.stream_options is not None and not self.stream:
            raise FieldError("needs stream: true", inner="stream_options")
        return self

    def list_prompts(self) -> list[str | tuple[int, ...]]:
        """Return the prompts one by one."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [tuple(self.prompt)]  # pyright: ignore[reportReturnType]
        return [p if isinstance(p, str) else tuple(p) for p in self.prompt]  # pyright: ignore

    def requests(self) -> list[TextRequest]:
        """Return a request for every prompt, in the words of no dialect."""
        answer = AnswerFields(
            max_tokens=self.max_tokens,
            sampling=self.choose_sampling(),
            stop=self.choose_stops(),
            logprobs=self.logprobs,
            choices=self.n or 1,
            ignore_eos=bool(self.ignore_eos),
            constraint=self.choose_constraint(),
        )
        return [TextRequest(prompt, answer) for prompt in self.list_prompts()]
