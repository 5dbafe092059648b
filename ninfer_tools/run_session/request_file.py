"""A conversation in a file: messages alone, or a request with messages, tools and parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ninfer_formats.errors import UsageError
from ninfer_tools.run_session.conversation import Message
from ninfer_tools.run_session.sampling import FIELDS, check_bias, check_stops, check_value

_KEYS = frozenset({
    "messages", "tools", "max_tokens", "max_completion_tokens", "stop", "seed", "logit_bias",
    "logprobs", "top_logprobs", "enable_thinking", "reasoning_effort", "chat_template_kwargs",
    *(key for key, _ in FIELDS.values()),
})  # fmt: skip
_TEMPLATE_KEYS = ("enable_thinking", "reasoning_effort")


@dataclass(frozen=True)
class FileRequest:
    """What a file asks for. `parameters` are those it states, checked, by their names in
    requests; `ignored` the names that mean nothing here."""

    messages: list[Message]
    tools: list[Message] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


def read_request(path: Path) -> FileRequest:
    """Return the request of a file; UsageError, naming the file, for one that cannot be used."""
    record = _read_json(path)
    if isinstance(record, list):
        return FileRequest(record)
    messages = record.get("messages") if isinstance(record, dict) else None
    if not isinstance(messages, list):
        raise UsageError("file holds no list of messages", path=path)
    stated = {key: value for key, value in record.items() if value is not None}
    tools = stated.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise UsageError("tools are not a list", path=path)
    for i, tool in enumerate(tools or ()):
        if not isinstance(tool, dict):
            raise UsageError("tool is not an object", path=path, where=f"tools[{i}]")
    ignored = tuple(key for key in stated if key not in _KEYS)
    return FileRequest(messages, tools, _read_parameters(stated, path), ignored)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot open: {error.strerror}", path=path) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"file is not JSON: {error}", path=path) from None


def _read_parameters(stated: Mapping[str, Any], path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (key, _) in FIELDS.items():
        check_value(name, stated.get(key), key, path)
        found[key] = stated.get(key)
    check_value("seed", stated.get("seed"), "seed", path)
    found["seed"] = stated.get("seed")
    found["max_tokens"] = _read_count(stated, "max_tokens", path)
    if "max_completion_tokens" in stated:
        found["max_tokens"] = _read_count(stated, "max_completion_tokens", path)
    found["logit_bias"] = _read_bias(stated.get("logit_bias"), path)
    found["stop"] = _read_stops(stated.get("stop"), path)
    found["top_logprobs"] = _read_logprobs(stated, path)
    found |= _read_template(stated, path)
    return {key: value for key, value in found.items() if value is not None}


def _read_count(stated: Mapping[str, Any], key: str, path: Path) -> int | None:
    value = stated.get(key)
    if value is not None and (type(value) is not int or value < 1):
        raise UsageError(f"{key} is out of range", path=path, got=value, want="an integer from 1")
    return value


def _read_bias(bias: Any, path: Path) -> dict[int, float] | None:
    if bias is None:
        return None
    try:
        found = {int(id): value for id, value in bias.items()}
    except (AttributeError, ValueError):
        raise UsageError("logit_bias is not an object of numbers by token id", path=path) from None
    check_bias(found, "logit_bias", path)
    return found


def _read_stops(stop: Any, path: Path) -> tuple[str, ...] | None:
    if stop is None:
        return None
    stops = tuple(stop) if isinstance(stop, list) else (stop,)
    check_stops(stops, "stop", path)
    return stops


def _read_logprobs(stated: Mapping[str, Any], path: Path) -> int | None:
    """Return how many likely tokens are wanted beside each, None for no log probabilities."""
    wanted, most = stated.get("logprobs"), stated.get("top_logprobs")
    if wanted is not None and not isinstance(wanted, bool):
        raise UsageError("logprobs is neither true nor false", path=path, got=wanted)
    if most is not None and (type(most) is not int or not 0 <= most <= 64):
        raise UsageError("top_logprobs is out of range", path=path, got=most, want="0 to 64")
    if wanted is False:
        return None
    return most if wanted is None else most or 0


def _read_template(stated: Mapping[str, Any], path: Path) -> dict[str, Any]:
    named = stated.get("chat_template_kwargs", {})
    if not isinstance(named, dict):
        raise UsageError("chat_template_kwargs is not an object", path=path)
    merged = {key: stated.get(key, named.get(key)) for key in _TEMPLATE_KEYS}
    thinking, effort = (merged[key] for key in _TEMPLATE_KEYS)
    if thinking is not None and not isinstance(thinking, bool):
        raise UsageError("enable_thinking is neither true nor false", path=path, got=thinking)
    if effort is not None and not isinstance(effort, str):
        raise UsageError("reasoning_effort is not a text", path=path, got=effort)
    return merged
