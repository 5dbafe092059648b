"""A loaded model and how it is asked: shared by single answers and conversations."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ninfer_formats.errors import NinferError
from ninfer_tools.console import print_json
from ninfer_tools.run_session.answer_settings import AnswerSettings
from ninfer_tools.run_session.answering import Answer, run_request
from ninfer_tools.run_session.conversation import Message
from ninfer_tools.run_session.interruption import Interruption
from ninfer_tools.run_session.media_rows import MediaRows
from ninfer_tools.run_session.report import describe, make_record
from ninfer_tools.run_session.screen import Screen

if TYPE_CHECKING:
    from ninfer_runtime.engine.engine import Engine
    from ninfer_runtime.engine.request import Request
    from ninfer_runtime.frontend.frontend import Frontend
    from ninfer_runtime.frontend.media import Medium
    from ninfer_runtime.frontend.prompt import Prompt
    from ninfer_runtime.frontend.tokenizer import Tokenizer


@dataclass(frozen=True)
class Session:
    """What stays the same from answer to answer; `tokenizer` is None where there is none. `json`
    prints one record in place of the answer."""

    engine: Engine
    tokenizer: Tokenizer | None
    settings: AnswerSettings
    json: bool = False
    rows: MediaRows = field(default_factory=MediaRows)

    def ask(self, prompt: Prompt, thinking: bool, *, patient: bool = False) -> Answer:
        """Return the answer to a prompt, shown as it comes, with its closing line on stderr.

        With `patient` no Ctrl-C but one that waits too long ends the program. RequestError for a
        prompt that does not fit or an answer that failed.
        """
        from ninfer_runtime.errors import RequestError

        request = self._make_request(prompt)
        screen = Screen(quiet=self.json)
        with Interruption(patient=patient) as interruption:
            answer = run_request(
                self.engine, request, self.tokenizer, thinking=thinking, screen=screen,
                stopped=lambda: interruption.asked, stops=self.settings.stops,
            )  # fmt: skip
        device = self.engine.settings.device
        if answer.error is not None:
            raise RequestError(answer.error)
        if self.json:
            print_json(make_record(answer, self.settings, device, self.tokenizer))
        elif self.tokenizer is None:
            print(",".join(map(str, answer.tokens)), flush=True)
        if not self.json:
            print(describe(answer, device), file=sys.stderr)
        return answer

    def _make_request(self, prompt: Prompt) -> Request:
        from ninfer_runtime.engine.checks import require_room
        from ninfer_runtime.engine.request import Request
        from ninfer_runtime.frontend.prompt import run_media

        context = self.engine.settings.max_context
        # Before its images go through the tower.
        require_room(len(prompt.ids), context)
        tower = self.engine.model.vision
        vocabulary = self.engine.geometry.text.vocab_size
        stops = () if self.tokenizer is None else self.tokenizer.stops
        return Request(
            prompt.ids,
            self.settings.max_new or context,
            self.settings.sampling,
            tuple(id for id in stops if id < vocabulary),
            None if tower is None else run_media(prompt, tower, self.rows.encode),
            self.settings.top_logprobs,
        )


def ask_chat(
    session: Session,
    frontend: Frontend,
    messages: Sequence[Message],
    media: Sequence[Medium],
    tools: Sequence[Message] | None = None,
    *,
    patient: bool = False,
) -> Answer:
    """Return the answer to a conversation."""
    from ninfer_runtime.frontend.template import TemplateOptions

    settings = session.settings
    options = TemplateOptions(
        enable_thinking=settings.thinking, reasoning_effort=settings.reasoning_effort
    )
    prompt = frontend.chat(messages, media, tools=tools, options=options)
    return session.ask(prompt.prompt, prompt.thinking, patient=patient)


def report_error(error: NinferError) -> None:
    """Print one line, as every command does for an error that ends it."""
    print(str(error), file=sys.stderr)
