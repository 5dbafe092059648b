"""How tokens are drawn: the model's preset, then the flags, then --greedy."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ninfer_formats.errors import ArtifactError
from ninfer_tools.run_session.options import SamplingFlags

if TYPE_CHECKING:
    from ninfer_runtime.engine.request import Sampling

# Field of Sampling -> key of generation_config.json, attribute of the flags, neutral value.
_FIELDS = {
    "temperature": ("temperature", "temperature", 1.0),
    "top_k": ("top_k", "top_k", 0),
    "top_p": ("top_p", "top_p", 1.0),
    "min_p": ("min_p", "min_p", 0.0),
    "repetition": ("repetition_penalty", "repetition_penalty", 1.0),
    "presence": ("presence_penalty", "presence_penalty", 0.0),
    "frequency": ("frequency_penalty", "frequency_penalty", 0.0),
}


def choose_sampling(preset: Mapping[str, Any], flags: SamplingFlags) -> Sampling:
    """Return the sampling of a request; `preset` is generation_config.json.

    A preset with `do_sample` off is greedy unless a flag says a temperature. Without --seed every
    call draws another one. ArtifactError for a preset that is not numbers.
    """
    from ninfer_runtime.engine.request import Sampling

    values: dict[str, Any] = {}
    for field, (key, attribute, neutral) in _FIELDS.items():
        flag = getattr(flags, attribute)
        values[field] = flag if flag is not None else _read(preset, key, neutral)
    asleep = preset.get("do_sample") is False and flags.temperature is None
    if flags.greedy or asleep:
        values["temperature"] = 0.0
    seed = flags.seed if flags.seed is not None else secrets.randbits(53)
    return Sampling(**values, seed=seed)


def _read(preset: Mapping[str, Any], key: str, neutral: float) -> float:
    value = preset.get(key)
    if value is None:
        return neutral
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArtifactError(f"{key} is not a number", where="generation_config.json", got=value)
    return type(neutral)(value)
