"""The text of an argument to a value of JSON, as the declared kinds ask."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from json.encoder import encode_basestring
from typing import Any, NoReturn

from ninfer_runtime.frontend.tool_calls.schema_kinds import kind_of

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_CONSTANTS = {"true": "true", "false": "false", "none": "null", "null": "null"}
# An open text runs to the end: one that is looked for again and again would cost squares.
_PYTHON = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|'(?:[^'\\]|\\.)*+(?:'|\\?\Z))"""
    r"""|(?P<word>[A-Za-z_]+)|(?P<comma>,\s*+(?=[\]})]))""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)|([\"\x00-\x1f])", re.DOTALL)
_KEPT_ESCAPES = '"\\/bfnrtu'


def convert_argument(text: str, kinds: Collection[str] | None) -> str | None:
    """Return the JSON of a value that was not admitted as a plain string; None for no value.

    JSON stays as it is spelled. Literals of Python, constants in any case and numbers are
    understood where their kind is declared; anything else is a string.
    """
    text = text.strip()
    if not text:
        return "null" if kinds is not None and "null" in kinds else None
    value = read_json(text)
    if kinds is None:
        return text if value is not UNREADABLE else quote(text)
    if value is not UNREADABLE:
        return _fit(text, value, kinds)
    return _convert_constant(text, kinds) or _convert_python(text, kinds) or quote(text)


class _Unreadable:
    """What is no JSON: None is a value of it."""


UNREADABLE = _Unreadable()


def read_json(text: str) -> Any:
    """Return the value of a JSON text, UNREADABLE for any other."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return UNREADABLE


def read_literal(text: str) -> Any:
    """Return the value of JSON or of a Python literal of the same kinds, else UNREADABLE."""
    value = read_json(text)
    return read_json(_from_python(text)) if value is UNREADABLE else value


def quote(text: str) -> str:
    return encode_basestring(text)


def escape(text: str) -> str:
    """Return a text as it stands between the quotes of a JSON string."""
    return encode_basestring(text)[1:-1]


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _fit(text: str, value: Any, kinds: Collection[str]) -> str:
    kind = kind_of(value)
    if kind == "integer" and isinstance(value, float) and "number" not in kinds:
        return str(int(value)) if abs(value) < 2**53 else text
    if isinstance(value, str) and "string" not in kinds:
        # A literal in quotes: "5" where a number belongs.
        inner = value.strip()
        found = read_json(inner)
        if found is not UNREADABLE and kind_of(found) in kinds:
            return _fit(inner, found, kinds)
        return _convert_constant(inner, kinds) or text
    return text


def _convert_constant(text: str, kinds: Collection[str]) -> str | None:
    constant = _CONSTANTS.get(text.lower()) if len(text) <= 5 else None
    if constant is not None:
        wanted = "null" if constant == "null" else "boolean"
        return constant if wanted in kinds else None
    if {"integer", "number"}.isdisjoint(kinds) or len(text) > 400 or not _NUMBER.fullmatch(text):
        return None
    if text.lstrip("+-").isdecimal():
        return str(int(text))  # a sign or zeros in front, which JSON does not have
    value = float(text)
    return repr(value) if math.isfinite(value) else None


def _convert_python(text: str, kinds: Collection[str]) -> str | None:
    if text[0] not in "[{('\"":
        return None
    found = _from_python(text)
    value = read_json(found)
    if value is UNREADABLE:
        return None
    kind = kind_of(value)
    if kind == "string":
        return _fit(found, value, kinds)
    return found if kind in kinds else None


def _from_python(text: str) -> str:
    """Return a Python literal with the quotes, constants, commas and brackets of JSON."""
    if text.startswith("(") and text.endswith(")"):
        text = f"[{text[1:-1]}]"
    return _PYTHON.sub(_translate, text)


def _translate(found: re.Match[str]) -> str:
    if found["comma"] is not None:
        return ""
    if found["word"] is not None:
        word = found["word"]
        return {"True": "true", "False": "false", "None": "null"}.get(word, word)
    text = found["text"]
    if text[0] == '"':
        return text
    return '"' + _ESCAPE.sub(_translate_escape, text[1:-1]) + '"'


def _translate_escape(found: re.Match[str]) -> str:
    if found[2] is not None:
        return escape(found[2])
    return found[0] if found[1] in _KEPT_ESCAPES else escape(found[1])
