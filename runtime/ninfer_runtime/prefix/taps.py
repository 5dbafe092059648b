"""Where a prefill stops to have its state kept."""

from __future__ import annotations

from collections.abc import Sequence

from ninfer_runtime.engine.request import MediaSpan
from ninfer_runtime.prefix.reuse import PROMPT, SHARED, SYSTEM, TAIL

# A question at the end of a long prompt may be another one next time.
_TAIL_TOKENS = 64
# Prompts that part so soon behind another stop gain nothing from one of their own.
_LEAST_SHARED = 16
# Prompts with less that is new are not worth a stop before their end.
_LEAST_NEW = 256


def plan_taps(
    length: int,
    boundaries: Sequence[int],
    spans: Sequence[MediaSpan],
    cached: int,
    matched: int,
) -> list[tuple[int, str]]:
    """Return (depth, kind), ascending: the state behind the first depth - 1 tokens of a prompt of
    `length` is to be kept, for prompts that agree in `depth`.

    `cached` tokens have their state already, and `matched` agree with an earlier prompt. No depth
    lies inside a medium.
    """
    wanted = dict.fromkeys(boundaries[:-1], SYSTEM) | dict.fromkeys(boundaries[-1:], PROMPT)
    if not any(matched - _LEAST_SHARED < depth <= matched for depth in (*wanted, cached + 1)):
        wanted[matched] = SHARED
    tail = length - _TAIL_TOKENS
    if tail - cached >= _LEAST_NEW:
        wanted.setdefault(tail, TAIL)
    found: dict[int, str] = {}
    for depth, kind in sorted(wanted.items()):
        place = leave_medium(depth, spans)
        if cached + 1 < place <= length:
            found.setdefault(place, kind)
    return sorted(found.items())


def leave_medium(depth: int, spans: Sequence[MediaSpan]) -> int:
    """Return the largest depth up to this one whose state, of one token less, cuts no medium."""
    for span in spans:
        if span.begin < depth - 1 < span.end:
            return span.begin + 1
    return depth
