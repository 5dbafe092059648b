"""Strict JSON for directories: no duplicate keys, no NaN or Infinity, bounded size and depth."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from ninfer_formats.errors import ArtifactError

MAX_DEPTH = 64
# A directory of a 397B model holds about 0.5 million containers and 0.6 million separators. The
# bounds stop small files that unfold into gigabytes of Python objects.
MAX_CONTAINERS = 4_000_000
MAX_SEPARATORS = 16_000_000
_CONTAINERS = frozenset({dict, list})
_IS_WHITE_SPACE = np.isin(np.arange(256), list(b" \t\n\r"))


def count_keys(value: Any) -> int:
    """Return the number of keys of all objects in a JSON value."""
    total = 0
    level = [value] if type(value) in _CONTAINERS else []
    while level:
        children: list[Any] = []
        for item in level:
            if type(item) is dict:
                total += len(item)
                children += item.values()
            else:
                children += item
        level = [child for child in children if type(child) in _CONTAINERS]
    return total


def parse_json(raw: bytes, count: Callable[[Any], int] = count_keys) -> Any:
    """Parse UTF-8 JSON strictly.

    `count` may be a cheaper way to count keys that is exact for every value the caller will
    accept; for values it will refuse anyway, any number does.

    Raises ArtifactError, naming the byte or key, for malformed UTF-8 or JSON, duplicate keys,
    numbers that are not finite, lone surrogates, or too many containers or separators.
    """
    _check_counts(raw)
    value = _load(raw, None)
    if not _has_unique_keys(raw, count(value)):
        # Slower, but it sees every pair: raises for a duplicate, and clears odd white space.
        value = _load(raw, _unique_object)
    if b"\\u" in raw:
        _check_surrogates(value)
    return value


def _load(raw: bytes, hook: Callable[[list[tuple[str, Any]]], Any] | None) -> Any:
    try:
        return json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=hook,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
        )
    except UnicodeDecodeError as error:
        raise ArtifactError("directory is not UTF-8", where=f"byte {error.start}") from None
    except RecursionError:
        raise ArtifactError("directory is nested too deeply", want=f"<= {MAX_DEPTH}") from None
    except json.JSONDecodeError as error:
        raise ArtifactError(f"directory is not JSON: {error.msg}", where=f"@{error.pos}") from None
    except ValueError as error:  # integers of thousands of digits
        raise ArtifactError(f"directory number is out of bounds: {error}") from None


def _has_unique_keys(raw: bytes, parsed_keys: int) -> bool:
    """Tell whether no key was lost; False may also mean that the text does not show it.

    Without white space before colons, the text has a quote and a colon side by side once per key,
    and more often only where a string begins with a colon or holds an escaped quote before one.
    A lost key makes the parsed keys fewer, so equal numbers prove that none was lost.
    """
    text = np.frombuffer(raw, np.uint8)
    before = text[np.flatnonzero(text[1:] == ord(":"))]
    if _IS_WHITE_SPACE[before].any():
        return False
    return int(np.count_nonzero(before == ord('"'))) == parsed_keys


def check_depth(value: Any, where: str) -> None:
    """Raise ArtifactError when an open object nests deeper than MAX_DEPTH."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for item in level for child in _children(item)]
        if not level:
            return
    raise ArtifactError("nested too deeply", where=where, want=f"<= {MAX_DEPTH} levels")


def write_json(value: Any) -> bytes:
    """Return compact UTF-8 JSON as every writer of the container emits it (raw non-ASCII)."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8")


def _check_counts(raw: bytes) -> None:
    if len(raw) <= MAX_CONTAINERS:
        return
    containers = raw.count(b"{") + raw.count(b"[")
    separators = raw.count(b",")
    if containers > MAX_CONTAINERS or separators > MAX_SEPARATORS:
        raise ArtifactError(
            "directory holds too many values",
            got=f"{containers} containers, {separators} separators",
            want=f"<= {MAX_CONTAINERS} and <= {MAX_SEPARATORS}",
        )


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for i, key in enumerate(keys) if key in keys[:i])
        raise ArtifactError("directory has a duplicate key", got=twice)
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise ArtifactError("directory holds a number that is not finite", got=text)


def _finite_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ArtifactError("directory holds a number that is not finite", got=text)
    return value


def _children(value: Any) -> list[Any]:
    if type(value) is dict:
        return list(value.values())
    return value if type(value) is list else []


def _strings(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if type(item) is str:
            yield item
        elif type(item) is dict:
            yield from item
        stack.extend(_children(item))


def _check_surrogates(value: Any) -> None:
    for text in _strings(value):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise ArtifactError("directory string holds a lone surrogate", got=text) from None
