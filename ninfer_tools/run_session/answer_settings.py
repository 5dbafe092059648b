"""How one answer is made: what the model, the flags and the request say of it, put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ninfer_tools.run_session.options import RunOptions
from ninfer_tools.run_session.sampling import choose_sampling

if TYPE_CHECKING:
    from ninfer_runtime.engine.request import Sampling


@dataclass(frozen=True)
class AnswerSettings:
    """`max_new` None: as much as the context has room for. `top_logprobs` is how many likely
    tokens are wanted beside each, None for no log probabilities."""

    sampling: Sampling
    max_new: int | None = None
    stops: tuple[str, ...] = ()
    top_logprobs: int | None = None
    thinking: bool | None = None
    reasoning_effort: str | None = None


def choose_settings(
    preset: Mapping[str, Any], options: RunOptions, asked: Mapping[str, Any]
) -> AnswerSettings:
    """Return the settings of an answer; what the request `asked` says counts more than flags."""
    return AnswerSettings(
        choose_sampling(preset, options.sampling, asked),
        asked.get("max_tokens", options.max_new),
        asked.get("stop", options.stops),
        asked.get("top_logprobs", options.top_logprobs),
        asked.get("enable_thinking", options.thinking),
        asked.get("reasoning_effort", options.reasoning_effort),
    )
