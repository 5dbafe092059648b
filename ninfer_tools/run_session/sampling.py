"""How tokens are drawn: the model's preset, the flags, the request, then --greedy."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_formats.errors import ArtifactError, UsageError
from ninfer_tools.run_session.options import SamplingFlags, parse_bias

if TYPE_CHECKING:
    from ninfer_runtime.engine.request import Sampling

# Field of Sampling -> its name in generation_config.json, requests and flags, and its neutral
# value.
FIELDS: dict[str, tuple[str, float]] = {
    "temperature": ("temperature", 1.0),
    "top_k": ("top_k", 0),
    "top_p": ("top_p", 1.0),
    "min_p": ("min_p", 0.0),
    "repetition": ("repetition_penalty", 1.0),
    "presence": ("presence_penalty", 0.0),
    "frequency": ("frequency_penalty", 0.0),
}


def choose_sampling(
    preset: Mapping[str, Any], flags: SamplingFlags, asked: Mapping[str, Any] | None = None
) -> Sampling:
    """Return the sampling of a request; `preset` is generation_config.json and `asked` what the
    request itself says, checked. The later of preset, flags and request counts, and `--greedy`
    above all (rule FE-30).

    A preset with `do_sample` off is greedy unless a temperature is stated. Without a seed every
    call draws another one. ArtifactError for a preset whose values cannot be used.
    """
    from ninfer_runtime.engine.request import Sampling

    asked = asked or {}
    values: dict[str, Any] = {}
    for field, (key, neutral) in FIELDS.items():
        stated = _first(asked.get(key), getattr(flags, key))
        values[field] = _read(preset, field, key, neutral) if stated is None else stated
    asleep = preset.get("do_sample") is False
    if flags.greedy or (asleep and _first(asked.get("temperature"), flags.temperature) is None):
        values["temperature"] = 0.0
    seed = _first(asked.get("seed"), flags.seed)
    bias = {**parse_bias(flags.bias), **asked.get("logit_bias", {})}
    return Sampling(**values, seed=secrets.randbits(53) if seed is None else seed, bias=bias)


def check_value(field: str, value: Any, name: str, path: Path | None = None) -> None:
    """Raise UsageError for a stated value that a field of Sampling cannot have."""
    from ninfer_runtime.engine.ranges import SAMPLING_RANGES, in_range

    if value is not None and not in_range(field, value):
        low, high = SAMPLING_RANGES[field]
        raise UsageError(f"{name} is out of range", path=path, got=value, want=f"{low} to {high}")


def check_bias(bias: Mapping[int, Any], name: str, path: Path | None = None) -> None:
    for id, value in bias.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or math.isnan(value) or value == math.inf:
            raise UsageError(f"{name} is out of range", path=path, where=f"token {id}", got=value,
                             want="a finite number, or -inf")  # fmt: skip


def check_stops(stops: Sequence[Any], name: str, path: Path | None = None) -> None:
    from ninfer_runtime.frontend.stop_strings import MAX_STOPS

    if len(stops) > MAX_STOPS:
        raise UsageError(f"too many of {name}", path=path, got=len(stops), want=MAX_STOPS)
    for stop in stops:
        if not isinstance(stop, str) or not stop:
            raise UsageError(f"{name} is not a text, or empty", path=path, got=repr(stop))


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _read(preset: Mapping[str, Any], field: str, key: str, neutral: float) -> float:
    from ninfer_runtime.engine.ranges import INTEGERS, SAMPLING_RANGES, in_range

    value = preset.get(key)
    if value is None:
        return neutral
    if field in INTEGERS and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not in_range(field, value):
        low, high = SAMPLING_RANGES[field]
        raise ArtifactError(f"{key} is out of range", where="generation_config.json", got=value,
                            want=f"{low} to {high}")  # fmt: skip
    return value
