"""A tool call as it comes, in the words of no dialect."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CallDelta:
    """A piece of the tool call number `index`. The first piece has `id` and `name`; the joined
    `arguments` of all pieces are one JSON object, or for a call that was cut no JSON at all."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
