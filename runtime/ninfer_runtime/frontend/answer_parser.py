"""An answer under way, split into reasoning, content and tool calls."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ninfer_runtime.frontend.output_parser import OutputParser, Pieces
from ninfer_runtime.frontend.tool_calls.call_delta import CallDelta
from ninfer_runtime.frontend.tool_calls.call_writer import CallNumbering, CallPiece
from ninfer_runtime.frontend.tool_calls.content_side import ContentSide
from ninfer_runtime.frontend.tool_calls.reasoning_side import ReasoningSide
from ninfer_runtime.frontend.tool_calls.tool_set import ToolSet

NO_TOOLS = ToolSet({})


@dataclass(frozen=True)
class AnswerPiece:
    """What some text added to one of the three sides of an answer."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[CallDelta, ...] = ()


def make_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


class AnswerParser:
    """Splits generated text, in any portions, into the sides of an answer.

    With `thinking` the prompt ends inside a think block. `tools` are those that may be called;
    without any no call is found, and markup of calls is no part of the content either. Without
    `parallel` the first call is handed out and the others are dropped. Never raises; the pieces of
    each side, joined, do not depend on the portions; time and memory are linear.
    """

    def __init__(
        self,
        thinking: bool,
        tools: ToolSet = NO_TOOLS,
        *,
        parallel: bool = True,
        new_id: Callable[[], str] = make_call_id,
    ) -> None:
        self._split = OutputParser(thinking)
        self._reasoning, self._content = ReasoningSide(tools), ContentSide(tools)
        self._calls = CallNumbering(parallel, new_id)
        self._reasoning_open = True

    @property
    def in_reasoning(self) -> bool:
        return self._split.in_reasoning

    @property
    def complete_calls(self) -> int:
        """How many calls were handed out that can be carried out."""
        return self._calls.complete

    def push(self, text: str) -> tuple[AnswerPiece, ...]:
        """Return what is certain now, in the order of the answer."""
        return self._take(self._split.push(text))

    def finish(self, cut: bool = False) -> tuple[AnswerPiece, ...]:
        """End the answer. `cut`: something other than the model ended it, such as the limit of
        tokens or a stop string, so that a call under way is not complete."""
        pieces = self._take(self._split.finish())
        if self._reasoning_open:
            pieces += self._reason(self._reasoning.finish(cut))
        return pieces + self._answer(self._content.finish(cut))

    def _take(self, pieces: Pieces) -> tuple[AnswerPiece, ...]:
        found = self._reason(self._reasoning.push(pieces.reasoning)) if pieces.reasoning else ()
        if pieces.answer:
            if self._reasoning_open:
                found += self._reason(self._reasoning.finish(False))
                self._reasoning_open = False
            found += self._answer(self._content.push(pieces.answer))
        return found

    def _reason(self, pieces: Iterable[str | CallPiece]) -> tuple[AnswerPiece, ...]:
        return self._gather(pieces, lambda text: AnswerPiece(reasoning=text))

    def _answer(self, pieces: Iterable[str | CallPiece]) -> tuple[AnswerPiece, ...]:
        return self._gather(pieces, lambda text: AnswerPiece(content=text))

    def _gather(
        self, pieces: Iterable[str | CallPiece], wrap: Callable[[str], AnswerPiece]
    ) -> tuple[AnswerPiece, ...]:
        found: list[AnswerPiece] = []
        for piece in pieces:
            if isinstance(piece, str):
                found.append(wrap(piece))
            elif deltas := self._calls.number([piece]):
                found.append(AnswerPiece(calls=deltas))
        return tuple(found)
