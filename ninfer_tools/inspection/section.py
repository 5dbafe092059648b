"""One part of the answer of `ninfer inspect`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Section:
    """A part of the answer: a member `name` of the JSON object, or text; `code` is what the
    command exits with at least."""

    name: str
    record: Any
    text: str
    code: int = 0
