"""Usage and timings of answers, as the OpenAI API and llama.cpp write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ninfer_runtime.server.events import Finished, Usage


def join_usage(finished: Sequence[Finished]) -> Usage:
    """Return the usage of all choices: the prompt counts once, whatever came of it is added."""
    first = finished[0].usage
    return Usage(
        prompt=first.prompt,
        completion=sum(done.usage.completion for done in finished),
        cached=first.cached,
        reasoning=sum(done.usage.reasoning for done in finished),
    )


def write_usage(usage: Usage) -> dict[str, Any]:
    """Return the usage object of the OpenAI API."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def write_timings(finished: Sequence[Finished], usage: Usage) -> dict[str, Any]:
    """Return the timings object of llama.cpp over all choices, whose usage together is `usage`.

    The prompt's time runs from admission to the first token. n tokens have n - 1 intervals, of
    which the rate is made; choices run side by side, so the longest one's time counts.
    """
    prefill = max(done.timings.prefill for done in finished)
    decode = max(done.timings.decode for done in finished)
    intervals = sum(max(done.usage.completion - 1, 0) for done in finished)
    computed = usage.prompt - usage.cached
    return {
        "cache_n": usage.cached,
        "prompt_n": computed,
        "prompt_ms": prefill * 1000,
        "prompt_per_token_ms": _divide(prefill * 1000, computed),
        "prompt_per_second": _divide(computed, prefill),
        "predicted_n": usage.completion,
        "predicted_ms": decode * 1000,
        "predicted_per_token_ms": _divide(decode * 1000, intervals),
        "predicted_per_second": _divide(intervals, decode),
        "draft_n": sum(done.timings.drafted for done in finished),
        "draft_n_accepted": sum(done.timings.accepted for done in finished),
    }


def _divide(amount: float, by: float) -> float:
    return amount / by if by > 0 else 0.0
