"""What a client asks for, in the words of no dialect: every API's body becomes one of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ninfer_runtime.frontend.tool_calls.forcing import ToolChoice


@dataclass(frozen=True)
class SamplingFields:
    """How tokens are drawn; None leaves a value to the server's flag, then to the model's preset.
    `bias` is added to the logits of token ids."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    presence: float | None = None
    frequency: float | None = None
    repetition: float | None = None
    seed: int | None = None
    bias: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ThinkingFields:
    """Switch, effort and budget in tokens of the reasoning; None leaves one to the server."""

    enabled: bool | None = None
    effort: str | None = None
    budget: int | None = None


@dataclass(frozen=True)
class Constraint:
    """What the answer must match. `kind` is `json_object`, `json_schema` (`text` is the schema as
    JSON), `regex`, `lark` (a grammar) or `gbnf`. Reasoning is free. `param` is the client's field
    that says so."""

    kind: str
    text: str = ""
    param: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class AnswerFields:
    """What every kind of generation takes. `max_tokens` None: the server's default. `logprobs` is
    how many of the most likely tokens are wanted beside each, None for none at all. `choices` are
    independent answers to the one prompt."""

    max_tokens: int | None = None
    sampling: SamplingFields = SamplingFields()
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    choices: int = 1
    ignore_eos: bool = False
    constraint: Constraint | None = None


@dataclass(frozen=True)
class ChatRequest:
    """A conversation to go on with.

    `messages` and `tools` have the form of Chat Completions (`tool_calls` with `function`, content
    text or parts, images as `image_url`). `template` holds further variables of the template.
    `prefill` is how the answer begins, behind reasoning that is switched off. One that is
    `counted` is never started and may be longer than the context.
    """

    messages: tuple[Mapping[str, Any], ...]
    answer: AnswerFields = AnswerFields()
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    parallel_calls: bool = True
    thinking: ThinkingFields = ThinkingFields()
    template: Mapping[str, Any] = field(default_factory=dict)
    prefill: str = ""
    counted: bool = False


@dataclass(frozen=True)
class TextRequest:
    """A text, or the ids of its tokens, to go on with."""

    prompt: str | tuple[int, ...]
    answer: AnswerFields = AnswerFields()
