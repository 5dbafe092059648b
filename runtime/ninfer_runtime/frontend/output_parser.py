"""Splitting an answer under way into reasoning and the answer proper."""

from __future__ import annotations

from dataclasses import dataclass

THINK_START, THINK_END = "<think>", "</think>"


@dataclass(frozen=True)
class Pieces:
    """What some generated text added to the reasoning and to the answer."""

    reasoning: str = ""
    answer: str = ""


class OutputParser:
    """Splits at the first `</think>`; blank space beside the marks belongs to neither side.

    With `thinking` the prompt ends inside a think block. Without it a block counts only when it
    is the first thing in the answer. Never raises; pieces joined do not depend on the portions.
    """

    def __init__(self, thinking: bool) -> None:
        self._state = _REASONING if thinking else _START
        self._held = ""
        # Whether blank space that comes next stands beside a mark.
        self._beside_mark = thinking

    @property
    def in_reasoning(self) -> bool:
        return self._state == _REASONING

    def push(self, text: str) -> Pieces:
        """Return what is certain now; the rest is held until more text decides it."""
        self._held += text
        if self._state == _START:
            self._find_start()
        reasoning = self._take_reasoning() if self._state == _REASONING else ""
        return Pieces(reasoning, self._take_answer() if self._state == _ANSWER else "")

    def finish(self) -> Pieces:
        """Return what was held: the text is at its end. A block left open is all reasoning."""
        held, self._held = self._held, ""
        if self._state == _REASONING:
            return Pieces(reasoning=(held.lstrip() if self._beside_mark else held).rstrip())
        return Pieces(answer=held.lstrip() if self._beside_mark else held)

    def _find_start(self) -> None:
        body = self._held.lstrip()
        if body.startswith(THINK_START):
            self._state, self._held = _REASONING, body.removeprefix(THINK_START)
            self._beside_mark = True
        elif not THINK_START.startswith(body):
            self._state = _ANSWER

    def _take_reasoning(self) -> str:
        if self._beside_mark:
            self._held = self._held.lstrip()
        text, mark, rest = self._held.partition(THINK_END)
        if mark:
            self._state, self._held, self._beside_mark = _ANSWER, rest, True
            return text.rstrip()
        # Blank space may stand before the mark, and the end of the text may begin it.
        keep = len(text[: len(text) - _overlap(text, THINK_END)].rstrip())
        self._held = text[keep:]
        self._beside_mark = self._beside_mark and keep == 0
        return text[:keep]

    def _take_answer(self) -> str:
        if self._beside_mark:
            self._held = self._held.lstrip()
            self._beside_mark = not self._held
        text, self._held = self._held, ""
        return text


_START, _REASONING, _ANSWER = "start", "reasoning", "answer"


def _overlap(text: str, mark: str) -> int:
    """Return how many characters at the end of `text` may be the beginning of `mark`."""
    sizes = range(min(len(text), len(mark) - 1), 0, -1)
    return next((n for n in sizes if text.endswith(mark[:n])), 0)
