"""What became of a prompt at its admission, for logs and usage. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

NONE = "none"
# Where a snapshot was taken: behind the system turn, before the answer's opener, at the end of an
# answer or of a cancelled prompt, where two prompts part, shortly before the end of a new prompt.
SYSTEM, PROMPT, ANSWER, SHARED, TAIL = "system", "prompt", "answer", "shared", "tail"


@dataclass(frozen=True)
class Reuse:
    """`kind` says what snapshot a prompt went on from, `cached` counts the tokens that were not
    computed again; `diverged` is the first position where the prompt that is kept and agrees the
    longest says something else, None where it does not or none is kept."""

    kind: str = NONE
    cached: int = 0
    diverged: int | None = None
