"""What rendering a chat template may cost: a template comes from a file and may be hostile."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sized
from dataclasses import dataclass
from typing import Any

# No field of a format needs more characters; `"{:999999999}".format(1)` would fill the memory.
MAX_WIDTH = 10_000
_WIDE = re.compile(r"\d{5,}")
_NESTED = re.compile(r"\{[^}]*\{")


class TemplateLimitError(Exception):
    """Rendering costs more than allowed."""


@dataclass(frozen=True)
class TemplateLimits:
    """`seconds` of one rendering, `size` of its text and of every text or list on the way."""

    seconds: float = 10.0
    size: int = 1 << 24


class Budget:
    """The limits of one rendering under way."""

    def __init__(self, limits: TemplateLimits) -> None:
        self.limits = limits
        self._deadline = time.monotonic() + limits.seconds

    def check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise TemplateLimitError(f"it takes more than {self.limits.seconds:g} seconds")

    def check_size(self, size: int) -> None:
        if size > self.limits.size:
            raise TemplateLimitError(f"it makes more than {self.limits.size} characters or items")

    def check_operands(self, operator: str, left: Any, right: Any) -> None:
        """Refuse a product, power or format whose result would be too large, before it is made."""
        if operator == "*":
            for sized, count in ((left, right), (right, left)):
                if isinstance(sized, Sized) and isinstance(count, int):
                    self.check_size(len(sized) * max(count, 0))
        elif operator == "**" and isinstance(right, int | float) and abs(right) > 64:
            raise TemplateLimitError("it takes a power above 64")
        elif operator == "%" and isinstance(left, str):
            check_format(left)


def check_format(text: str, arguments: Iterable[Any] = ()) -> None:
    """Refuse a format string with a field that is very wide, or that an argument makes so."""
    if _WIDE.search(text):
        raise TemplateLimitError(f"it formats a field wider than {MAX_WIDTH}")
    if _NESTED.search(text):
        check_widths(arguments)


def check_widths(arguments: Iterable[Any]) -> None:
    """Refuse large numbers among the arguments of text functions such as `center`."""
    for value in arguments:
        if isinstance(value, int) and value > MAX_WIDTH:
            raise TemplateLimitError(f"it makes a text wider than {MAX_WIDTH}")
