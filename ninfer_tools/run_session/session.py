"""A loaded model and how it is asked: shared by single answers and conversations."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninfer_formats.errors import NinferError
from ninfer_tools.console import print_json
from ninfer_tools.run_session.answering import Answer, run_request
from ninfer_tools.run_session.conversation import Message
from ninfer_tools.run_session.interruption import Interruption
from ninfer_tools.run_session.options import RunOptions
from ninfer_tools.run_session.report import describe, make_record
from ninfer_tools.run_session.screen import Screen

if TYPE_CHECKING:
    from ninfer_runtime.engine.engine import Engine
    from ninfer_runtime.engine.request import Request, Sampling
    from ninfer_runtime.frontend.frontend import Frontend
    from ninfer_runtime.frontend.media import Medium
    from ninfer_runtime.frontend.prompt import Prompt
    from ninfer_runtime.frontend.tokenizer import Tokenizer


@dataclass(frozen=True)
class Session:
    """What stays the same from answer to answer; `tokenizer` is None where there is none."""

    engine: Engine
    tokenizer: Tokenizer | None
    sampling: Sampling
    options: RunOptions

    def ask(self, prompt: Prompt, thinking: bool) -> Answer:
        """Return the answer to a prompt, shown as it comes, with its closing line on stderr.

        RequestError for a prompt that does not fit or an answer that failed.
        """
        from ninfer_runtime.errors import RequestError

        screen = Screen(quiet=self.options.json_output)
        with Interruption() as interruption:
            answer = run_request(
                self.engine,
                self._make_request(prompt),
                self.tokenizer,
                thinking=thinking,
                screen=screen,
                stopped=lambda: interruption.asked,
            )
        device = self.engine.settings.device
        if answer.error is not None:
            raise RequestError(answer.error)
        if self.options.json_output:
            print_json(make_record(answer, self.sampling, device))
        elif self.tokenizer is None:
            print(",".join(map(str, answer.tokens)), flush=True)
        if not self.options.json_output:
            print(describe(answer, device), file=sys.stderr)
        return answer

    def _make_request(self, prompt: Prompt) -> Request:
        from ninfer_runtime.engine.request import Request
        from ninfer_runtime.frontend.prompt import run_media

        context = self.engine.settings.max_context
        self._check_length(len(prompt.ids))
        tower = self.engine.model.vision
        return Request(
            prompt.ids,
            self.options.max_new or context,
            self.sampling,
            () if self.tokenizer is None else self.tokenizer.stops,
            None if tower is None else run_media(prompt, tower),
        )

    def _check_length(self, tokens: int) -> None:
        """Refuse a prompt that is too long before its images go through the tower."""
        from ninfer_runtime.errors import RequestError

        context = self.engine.settings.max_context
        if tokens >= context:
            raise RequestError(
                "the prompt is longer than the context", got=f"{tokens} tokens",
                want=f"at most {context - 1}",
                remedy="shorten it, or start with a larger --max-context",
            )  # fmt: skip


def ask_chat(
    session: Session,
    frontend: Frontend,
    messages: Sequence[Message],
    media: Sequence[Medium],
    tools: Sequence[Message] | None = None,
) -> Answer:
    """Return the answer to a conversation."""
    from ninfer_runtime.frontend.template import TemplateOptions

    options = TemplateOptions(
        enable_thinking=session.options.thinking,
        reasoning_effort=session.options.reasoning_effort,
    )
    prompt = frontend.chat(messages, media, tools=tools, options=options)
    return session.ask(prompt.prompt, prompt.thinking)


def report_error(error: NinferError) -> None:
    """Print one line, as every command does for an error that ends it."""
    print(str(error), file=sys.stderr)
