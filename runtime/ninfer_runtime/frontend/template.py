"""The chat template of an artifact: messages to the text the model was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from ninfer_formats.reader import Artifact
from ninfer_runtime.errors import RequestError, StartupError
from ninfer_runtime.frontend.resources import read_json, read_text
from ninfer_runtime.frontend.template_budget import Budget, TemplateLimitError, TemplateLimits
from ninfer_runtime.frontend.template_environment import (
    BUDGET,
    TemplateEnvironment,
    TemplateRefusalError,
)

NAME = "chat_template.jinja"


@dataclass(frozen=True)
class TemplateOptions:
    """Switches of the family's templates; None leaves one to the template."""

    enable_thinking: bool | None = None
    preserve_thinking: bool | None = None
    reasoning_effort: str | None = None
    add_vision_id: bool | None = None

    def stated(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


class ChatTemplate:
    """A compiled template; `variables` are its constants, such as the names of special tokens."""

    def __init__(
        self,
        source: str,
        variables: Mapping[str, str] | None = None,
        limits: TemplateLimits | None = None,
    ) -> None:
        self.source = source
        self._variables = dict(variables or {})
        self._limits = limits or TemplateLimits()
        try:
            self._template = TemplateEnvironment().compile_guarded(source, NAME)
        except jinja2.TemplateSyntaxError as error:
            where = f"{NAME} line {error.lineno}"
            raise StartupError(f"template is broken: {error.message}", where=where) from None
        except (jinja2.TemplateError, RecursionError, SyntaxError, ValueError) as error:
            raise StartupError(f"template is broken: {error}", where=NAME) from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: TemplateOptions | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Return the prompt of messages from `prepare_messages`.

        RequestError naming the line of the template that refuses, fails or costs too much.
        """
        budget = Budget(self._limits)
        variables = {
            **self._variables,
            **(options or TemplateOptions()).stated(),
            "messages": messages,
            "tools": tools or None,
            "add_generation_prompt": add_generation_prompt,
            BUDGET: budget,
        }
        parts, size = [], 0
        try:
            for part in self._template.generate(variables):
                size += len(part)
                budget.check_size(size)
                budget.check_time()
                parts.append(part)
        except Exception as error:  # whatever a template does wrong, it is one request's end
            raise _explain(error) from None
        return "".join(parts)


def load_template(artifact: Artifact) -> ChatTemplate:
    """Return the template an artifact carries; StartupError without one or for a broken one."""
    config = read_json(artifact, "tokenizer_config.json") or {}
    source = read_text(artifact, NAME)
    if source is None:
        source = config.get("chat_template")
    if not isinstance(source, str):
        raise StartupError(
            "the artifact has no chat template", path=artifact.path,
            remedy="add one: ninfer migrate IN OUT --chat-template FILE",
        )  # fmt: skip
    names = {
        key: value
        for key, value in config.items()
        if key.endswith("_token") and isinstance(value, str)
    }
    try:
        return ChatTemplate(source, names)
    except StartupError as error:
        error.path = artifact.path
        raise


def _explain(error: Exception) -> RequestError:
    line = _find_line(error)
    where = NAME if line is None else f"{NAME} line {line}"
    if isinstance(error, TemplateRefusalError):
        return RequestError(f"the chat template refuses the messages: {error}", where=where)
    if isinstance(error, TemplateLimitError):
        return RequestError(f"the chat template is stopped: {error}", where=where)
    if isinstance(error, RecursionError | MemoryError):
        return RequestError("the chat template is stopped: it nests too deeply", where=where)
    message = f"the chat template fails: {type(error).__name__}: {error}"
    return RequestError(message, where=where)


def _find_line(error: Exception) -> int | None:
    """Return the innermost line of the template in the traceback, which jinja2 has rewritten."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == NAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
