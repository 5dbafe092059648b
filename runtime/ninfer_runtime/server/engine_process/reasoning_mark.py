"""Where the reasoning of an answer ends, to the token."""

from __future__ import annotations

from ninfer_runtime.frontend.output_parser import THINK_END, THINK_START


class ReasoningMark:
    """Splits text into what stands before the end of the reasoning, marks included, and the answer.

    As `OutputParser` does it: with `thinking` the text begins inside the block, without only if
    `<think>` is the first thing in it; None: there are no marks, all is answer.
    """

    def __init__(self, thinking: bool | None) -> None:
        self._state = {True: _INSIDE, False: _START, None: _BEHIND}[thinking]
        self._tail = ""

    @property
    def inside(self) -> bool:
        return self._state == _INSIDE

    @property
    def behind(self) -> bool:
        """Whether the answer has begun."""
        return self._state == _BEHIND

    def push(self, text: str) -> tuple[str, str]:
        """Return (text of the reasoning, text of the answer); an undecided beginning is held."""
        if self._state == _START:
            text, self._tail = self._tail + text, ""
            body = text.lstrip()
            if THINK_START.startswith(body):
                if body != THINK_START:
                    self._tail = text
                    return "", ""
            elif not body.startswith(THINK_START):
                self._state = _BEHIND
                return "", text
            self._state = _INSIDE
        if self._state == _BEHIND:
            return "", text
        seen = self._tail + text
        place = seen.find(THINK_END)
        if place < 0:
            self._tail = seen[-len(THINK_END) + 1 :]
            return text, ""
        self._state = _BEHIND
        rest = seen[place + len(THINK_END) :]
        return text[: len(text) - len(rest)], rest

    def finish(self) -> str:
        """Return the answer's text that was held: the text is at its end."""
        held = self._tail if self._state == _START else ""
        self._tail = ""
        return held


_START, _INSIDE, _BEHIND = "start", "inside", "behind"
