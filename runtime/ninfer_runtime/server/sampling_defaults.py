"""How tokens are drawn when a request does not say: the model's preset, then the server's flags."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ninfer_formats.errors import ArtifactError
from ninfer_runtime.engine.ranges import INTEGERS, SAMPLING_RANGES, in_range
from ninfer_runtime.engine.request import Sampling
from ninfer_runtime.server.api_error import invalid
from ninfer_runtime.server.requests import SamplingFields

# Field of Sampling -> key of generation_config.json, neutral value, name in requests.
_FIELDS: dict[str, tuple[str, float, str]] = {
    "temperature": ("temperature", 1.0, "temperature"),
    "top_k": ("top_k", 0, "top_k"),
    "top_p": ("top_p", 1.0, "top_p"),
    "min_p": ("min_p", 0.0, "min_p"),
    "repetition": ("repetition_penalty", 1.0, "repetition_penalty"),
    "presence": ("presence_penalty", 0.0, "presence_penalty"),
    "frequency": ("frequency_penalty", 0.0, "frequency_penalty"),
}
_SEEDS = 2**63


@dataclass(frozen=True)
class SamplingDefaults:
    """`preset` is generation_config.json; `flags` are the server's, over which `greedy` and then
    nothing counts more."""

    preset: Mapping[str, Any] = field(default_factory=dict)
    flags: SamplingFields = field(default_factory=SamplingFields)
    greedy: bool = False

    def choose(self, asked: SamplingFields) -> Sampling:
        """Return the sampling of a request; without a seed every call draws another one.

        A preset with `do_sample` off is greedy unless a temperature is stated. ApiError 400 names
        the field that is out of range.
        """
        values = {name: self._choose_value(name, asked) for name in _FIELDS}
        stated = self.flags.temperature if asked.temperature is None else asked.temperature
        asleep = self.preset.get("do_sample") is False and stated is None
        if self.greedy or asleep:
            values["temperature"] = 0.0
        for name, (_, _, param) in _FIELDS.items():
            if not in_range(name, values[name]):
                low, high = SAMPLING_RANGES[name]
                message = f"{param} is {values[name]!r}, want {low} to {high}"
                raise invalid(message, param, "invalid_value")
        seed = self.flags.seed if asked.seed is None else asked.seed
        seed = secrets.randbits(53) if seed is None else seed % _SEEDS
        return Sampling(**values, seed=seed, bias={**self.flags.bias, **asked.bias})

    def _choose_value(self, name: str, asked: SamplingFields) -> Any:
        for fields in (asked, self.flags):
            value = getattr(fields, name)
            if value is not None:
                return value
        key, neutral, _ = _FIELDS[name]
        value = self.preset.get(key)
        if value is None:
            return neutral
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ArtifactError(f"{key} is not a number", where="generation_config.json", got=value)
        return int(value) if name in INTEGERS else float(value)


def next_seed(sampling: Sampling, steps: int) -> int:
    """Return the seed of the choice so many behind the first."""
    return (sampling.seed + steps) % _SEEDS
