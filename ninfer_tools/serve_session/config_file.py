"""Options from a TOML file, by their long names."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ninfer_formats.errors import UsageError
from ninfer_tools.serve_session.options import ServeOptions, name_fields
from ninfer_tools.serve_session.problems import ProblemList

FILE, SYNTHETIC = "file", "synthetic"
_WORDS = {
    "int": "a whole number", "float": "a number", "str": "a text", "Path": "a text",
    "bool": "true or false", "tuple": "a list of texts",
}  # fmt: skip


def read_config(path: Path) -> dict[str, Any]:
    """Return the values of a file by field of ServeOptions, and `file` or `synthetic`.

    Paths in it are relative to its folder. StartProblems with a line for every key that is
    unknown or of a wrong type; UsageError for a file that cannot be read.
    """
    try:
        record = tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot open: {error.strerror}", path=path) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"file is not TOML: {error}", path=path) from None
    return _read_values(record, path)


def _read_values(record: Mapping[str, Any], path: Path) -> dict[str, Any]:
    names, problems, found = name_fields(), ProblemList(), {}
    kinds = {item.name: item for item in fields(ServeOptions)}
    for key, value in record.items():
        with problems.collect():
            if key in (FILE, SYNTHETIC):
                _require(isinstance(value, str), "str", key, value, path)
                found[key] = path.parent / value if key == FILE else value
                continue
            if key not in names:
                raise _unknown(key, names, path)
            field, switched = names[key]
            if field in found:
                raise UsageError("option is given twice", path=path, where=key)
            read = _read_value(kinds[field], key, value, path)
            found[field] = (read == switched) if switched is not None else read
    problems.raise_any()
    return found


def _read_value(item: Any, key: str, value: Any, path: Path) -> Any:
    kind = str(item.type).removesuffix(" | None").partition("[")[0]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if item.metadata["numeric"] and type(value) is int:
        return str(value)
    if kind == "tuple":
        texts: Any = [value] if isinstance(value, str) else value
        right = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        _require(right, kind, key, value, path)
        return tuple(texts)
    right = {
        "int": number and isinstance(value, int), "float": number,
        "str": isinstance(value, str), "Path": isinstance(value, str),
        "bool": isinstance(value, bool),
    }[kind]  # fmt: skip
    _require(right, kind, key, value, path)
    convert = {"Path": lambda: path.parent / str(value), "float": lambda: float(value)}
    return convert[kind]() if kind in convert else value


def _require(right: bool, kind: str, key: str, value: Any, path: Path) -> None:
    if not right:
        # Not the value itself: it may be a key that clients send.
        raise UsageError(
            "option has a wrong type", path=path, where=key, got=type(value).__name__,
            want=_WORDS[kind],
        )  # fmt: skip


def _unknown(key: str, names: Mapping[str, Any], path: Path) -> UsageError:
    near = difflib.get_close_matches(key.replace("_", "-"), names, 1)
    return UsageError(
        "option is not known", path=path, where=key,
        remedy=f"did you mean {near[0]}?" if near else "`ninfer serve --help` lists all",
    )  # fmt: skip
