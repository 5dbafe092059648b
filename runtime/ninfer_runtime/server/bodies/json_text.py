"""JSON of a request, read strictly: what two readers could understand differently is refused."""

from __future__ import annotations

import json
import math
import re
from json import scanner
from typing import Any

from ninfer_runtime.server.api_error import ApiError, invalid

DEPTH = 128
# The accelerator of `json` lets no other thread run until it is through: 50 ms for so many bytes.
LARGE = 1 << 22
_SURROGATE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}|\\u[dD][c-fC-F][0-9a-fA-F]{2}")


class _RefusedError(ValueError):
    """JSON that other readers accept."""


def parse_json(data: bytes) -> Any:
    """Return the value of a JSON text.

    ApiError 400 for an empty body, text that is not UTF-8 or not JSON, names that stand twice in
    an object, numbers that are not finite and nesting deeper than `DEPTH`. Halves of surrogate
    pairs become U+FFFD.
    """
    if not data.strip():
        raise invalid("request body is empty, want JSON")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid(f"request body is not UTF-8: byte {error.start}") from None
    try:
        value = _make_decoder(stepwise=len(data) > LARGE).decode(text)
    except _RefusedError as error:
        raise invalid(f"request body is not valid JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise invalid(f"request body is not valid JSON: {error}") from None
    if data.count(b"[") + data.count(b"{") > DEPTH and _measure_depth(value) > DEPTH:
        raise _too_deep()
    return _mend(value) if _SURROGATE.search(data) else value


def _make_decoder(*, stepwise: bool) -> json.JSONDecoder:
    """Return a decoder; one that goes stepwise is slower, 0.3 s for a million of numbers, and lets
    other threads run between two values."""
    decoder = json.JSONDecoder(
        object_pairs_hook=_join_pairs, parse_float=_read_float, parse_constant=_refuse
    )
    if stepwise:
        # What `json` itself uses where its accelerator is missing.
        decoder.scan_once = scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]
    return decoder


def _join_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise _RefusedError(f"{twice[:100]!r} stands twice in one object")
    return found


def _read_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _RefusedError(f"number {text[:40]} is out of range")
    return value


def _refuse(name: str) -> float:
    raise _RefusedError(f"{name} is not JSON")


def _too_deep() -> ApiError:
    return invalid(f"request body is nested too deeply, at most {DEPTH} levels")


def _measure_depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        if depth > DEPTH:
            break
        level = [
            inner for item in level for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def _mend(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_mend(item) for item in value]
    if isinstance(value, dict):
        return {_mend(name): _mend(item) for name, item in value.items()}
    return value
