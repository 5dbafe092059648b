"""How long an answer may think, so that something is left for the answer itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# What the model was trained to end an unfinished thought with.
CLOSE_TEXT = (
    "\n\n Considering the limited time by the user, I have to give the solution based on the "
    "thinking directly now.\n</think>\n\n"
)
SHORT_CLOSE_TEXT = "\n</think>\n\n"
# Shorter answers reserve nothing: such a limit looks at the beginning of the reasoning.
SMALLEST_RESERVING = 64


@dataclass(frozen=True)
class ThinkingLimit:
    """After `tokens` tokens of reasoning (None: never) those of `close` follow."""

    tokens: int | None = None
    close: tuple[int, ...] = ()


def limit_thinking(
    max_tokens: int, budget: int | None, reserve: int, closes: Sequence[Sequence[int]]
) -> ThinkingLimit:
    """Return the limit: `budget`, but no more than leaves room for the close and for a reserve of
    min(`reserve`, max_tokens / 4) tokens, none below max_tokens 64.

    `closes` are ways to close, the preferred one first: the first that leaves a token to think is
    used; without any, and without budget and reserve, nothing is limited.
    """
    kept = min(reserve, max_tokens // 4) if max_tokens >= SMALLEST_RESERVING else 0
    if budget is None and not kept:
        return ThinkingLimit()
    for close in closes:
        room = max_tokens - kept - len(close)
        tokens = room if budget is None else min(budget, room)
        if tokens >= 1:
            return ThinkingLimit(tokens, tuple(close))
    return ThinkingLimit()
