"""Tool calls of earlier answers as clients send them back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ninfer_runtime.errors import RequestError

_TURN = re.compile(r'\\.|\\\Z|["{}\[\],]', re.DOTALL)


def prepare_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    """Return calls with their arguments as objects. RequestError naming the call that is none."""
    if not isinstance(calls, list | tuple) or not all(isinstance(c, Mapping) for c in calls):
        raise RequestError("tool_calls is not a list of objects", where=where)
    return [_prepare_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]


def prepare_function_call(call: Any, where: str) -> list[dict[str, Any]]:
    """Return the one call of the older form."""
    where = f"{where}.function_call"
    if not isinstance(call, Mapping):
        raise RequestError("function_call is not an object", where=where)
    return [{"type": "function", "function": _prepare_call(call, where)}]


def _prepare_call(call: Mapping[str, Any], where: str) -> dict[str, Any]:
    if isinstance(call.get("function"), Mapping):
        return {**call, "function": _prepare_call(call["function"], where)}
    if not isinstance(call.get("name"), str) or not call["name"]:
        raise RequestError("call has no name of a function", where=where, got=call.get("name"))
    return {**call, "arguments": _read_arguments(call.get("arguments"), where)}


def _read_arguments(arguments: Any, where: str) -> dict[str, Any]:
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    if isinstance(arguments, Mapping):
        return dict(arguments)
    value = _read_json(arguments) if isinstance(arguments, str) else arguments
    if value is None and isinstance(arguments, str) and arguments.lstrip().startswith("{"):
        value = _complete(arguments)
    if value is None:
        raise RequestError("arguments are not JSON", where=where, got=str(arguments)[:80])
    if not isinstance(value, dict):
        raise RequestError("arguments are not a JSON object", where=where, got=str(arguments)[:80])
    return value


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _complete(text: str) -> Any:
    """Return the object of a text that was cut, as the limit of tokens leaves a call: what was
    open is closed, or else left out from the last comma of the object itself on."""
    closers, in_text, comma, opening = "", False, None, text.index("{") + 1
    for found in _TURN.finditer(text):
        mark = found[0]
        if mark == '"':
            in_text = not in_text
        elif in_text:
            if mark == "\\":
                text = text[:-1]
        elif mark in "{[":
            closers = ("}" if mark == "{" else "]") + closers
        elif mark in "}]":
            closers = closers[1:]
            if not closers:
                return None
        elif mark == "," and len(closers) == 1:
            comma = found.start()
    whole = _read_json(text + ('"' if in_text else "") + closers)
    if isinstance(whole, dict):
        return whole
    return _read_json(text[: opening if comma is None else comma] + "}")
