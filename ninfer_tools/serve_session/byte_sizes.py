"""Amounts of memory as people write them."""

from __future__ import annotations

import re

from ninfer_formats.errors import UsageError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?", re.IGNORECASE)


def parse_size(text: str, option: str) -> int:
    """Return the bytes of `24GiB`, `24G`, `24GB` or `1024`; only MB, GB and so on count by 1000.

    UsageError naming `option` for anything else.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{option} is not a size", got=text, want="such as 24GiB, or bytes")
    number, unit, binary = found[1], (found[2] or "").lower(), bool(found[3])
    decimal = not binary and text.strip().lower().endswith("b") and unit != ""
    scale = 1
    if unit:
        power = "kmgt".index(unit) + 1
        scale = 1000**power if decimal else 1024**power
    return int(float(number) * scale) if "." in number else int(number) * scale
