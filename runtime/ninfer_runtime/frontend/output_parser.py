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
        # Blank space that may stand beside a mark, and behind it the beginning of one. Apart, so
        # that a long stretch is not looked through again for every piece of it.
        self._blank: list[str] = []
        self._held = ""
        self._beside_mark = thinking

    @property
    def in_reasoning(self) -> bool:
        return self._state == _REASONING

    def push(self, text: str) -> Pieces:
        """Return what is certain now; the rest is held until more text decides it."""
        reasoning = ""
        if self._state == _START:
            text = self._find_start(text)
        if self._state == _REASONING:
            reasoning, text = self._take_reasoning(text)
        return Pieces(reasoning, self._take_answer(text) if self._state == _ANSWER else "")

    def finish(self) -> Pieces:
        """Return what was held: the text is at its end. A block left open is all reasoning."""
        held, self._held = self._held, ""
        if self._state == _REASONING:
            return Pieces(reasoning=self._release(held))
        return Pieces(answer="".join(self._blank) + held if self._state == _START else "")

    def _find_start(self, text: str) -> str:
        """Return what is decided to stand behind the mark, or to be the answer."""
        body = text if self._held else text.lstrip()
        self._blank.append(text[: len(text) - len(body)])
        body = self._held + body
        if body.startswith(THINK_START):
            self._state, self._held, self._blank = _REASONING, "", []
            self._beside_mark = True
            return body.removeprefix(THINK_START)
        if THINK_START.startswith(body):
            self._held = body
            return ""
        text = "".join(self._blank) + body
        self._state, self._held, self._blank = _ANSWER, "", []
        return text

    def _take_reasoning(self, text: str) -> tuple[str, str]:
        """Return what is certain of the reasoning, and what stands behind its mark."""
        body, mark, rest = (self._held + text).partition(THINK_END)
        if mark:
            reasoning = self._release(body)
            self._state, self._held, self._blank = _ANSWER, "", []
            self._beside_mark = True
            return reasoning, rest
        keep = len(body) - _overlap(body, THINK_END)
        self._held = body[keep:]
        return self._release(body[:keep]), ""

    def _release(self, text: str) -> str:
        """Return the text but for blank space at either side that may stand beside a mark."""
        kept = text.rstrip()
        trailing = text[len(kept) :]
        if self._beside_mark:
            kept = kept.lstrip()
            self._beside_mark = not kept
            trailing = trailing if kept else ""
        if not kept:
            self._blank.append(trailing)
            return ""
        kept = "".join(self._blank) + kept
        self._blank = [trailing]
        return kept

    def _take_answer(self, text: str) -> str:
        if self._beside_mark:
            text = text.lstrip()
            self._beside_mark = not text
        return text


_START, _REASONING, _ANSWER = "start", "reasoning", "answer"


def _overlap(text: str, mark: str) -> int:
    """Return how many characters at the end of `text` may be the beginning of `mark`."""
    sizes = range(min(len(text), len(mark) - 1), 0, -1)
    return next((n for n in sizes if text.endswith(mark[:n])), 0)
