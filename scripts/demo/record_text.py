"""JSON for people: one entry a line, lists of numbers on one line."""

from __future__ import annotations

import json
import re
from typing import Any

_NUMBERS = re.compile(r"\[[-+\d.,eE\s]+\]")


def to_text(record: Any) -> str:
    text = json.dumps(record, indent=1, ensure_ascii=False)
    return _NUMBERS.sub(lambda match: _join(match[0]), text) + "\n"


def _join(numbers: str) -> str:
    return re.sub(r"\s+", " ", numbers).replace("[ ", "[").replace(" ]", "]")
