"""Counting elements of other documents, so that their closing tags are told from a call's."""

from __future__ import annotations

from ninfer_runtime.frontend.tool_calls.tags import (
    CLOSE_CALL,
    CLOSE_FUNCTION,
    CLOSE_PARAMETER,
    FUNCTION_ELEMENT,
    OPEN_CALL,
    OPEN_FUNCTION,
    OPEN_PARAMETER,
    PARAMETER_ELEMENT,
)

_CLOSER = {
    OPEN_CALL: CLOSE_CALL,
    OPEN_FUNCTION: CLOSE_FUNCTION,
    FUNCTION_ELEMENT: CLOSE_FUNCTION,
    OPEN_PARAMETER: CLOSE_PARAMETER,
    PARAMETER_ELEMENT: CLOSE_PARAMETER,
}


class NestedMarkup:
    """What is open inside a text."""

    def __init__(self) -> None:
        self._open = {CLOSE_CALL: 0, CLOSE_FUNCTION: 0, CLOSE_PARAMETER: 0}

    def __bool__(self) -> bool:
        return any(self._open.values())

    def holds(self, kind: str) -> bool:
        """Whether an element is open that a tag of this kind opens or closes."""
        return self._open[_CLOSER.get(kind, kind)] > 0

    def open(self, kind: str) -> None:
        self._open[_CLOSER[kind]] += 1

    def close(self, kind: str) -> bool:
        """Close the innermost element of a kind; False when none is open."""
        if not self._open[kind]:
            return False
        self._open[kind] -= 1
        return True
