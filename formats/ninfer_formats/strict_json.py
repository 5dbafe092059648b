"""Strict JSON for directories: no duplicate keys, no NaN or Infinity, bounded size and depth."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn

from ninfer_formats.errors import ArtifactError

MAX_DIRECTORY_BYTES = 256 * 2**20
MAX_DEPTH = 64
# A directory of a 397B model holds about 0.5 million containers and 2 million separators. The
# bounds stop small files that unfold into gigabytes of Python objects.
MAX_CONTAINERS = 4_000_000
MAX_SEPARATORS = 16_000_000


def parse_json(raw: bytes) -> Any:
    """Parse UTF-8 JSON strictly.

    Raises ArtifactError, naming the byte or key, for malformed UTF-8 or JSON, duplicate keys,
    numbers that are not finite, lone surrogates, or too many containers or separators.
    """
    _check_counts(raw)
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_unique_object,
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
    if b"\\u" in raw:
        _check_surrogates(value)
    return value


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
