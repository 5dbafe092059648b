"""What the engine reported last, and the lanes as the server sees them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ninfer_runtime.server.answer import AnswerState, Choice
from ninfer_runtime.server.engine_process.messages import Gauges, Ready


def describe_slots(
    ready: Ready, present: Iterable[tuple[AnswerState, Choice]]
) -> list[dict[str, Any]]:
    """Return one object a lane, in the spirit of llama.cpp's /slots."""
    taken = {choice.lane: (state, choice) for state, choice in present if choice.lane is not None}
    return [_describe(lane, ready, taken.get(lane)) for lane in range(ready.lanes)]


def _describe(lane: int, ready: Ready, holder: tuple[AnswerState, Choice] | None) -> dict[str, Any]:
    slot: dict[str, Any] = {
        "id": lane, "n_ctx": ready.max_context, "speculative": ready.drafts > 0,
        "is_processing": holder is not None,
    }  # fmt: skip
    if holder is None:
        return slot
    state, choice = holder
    prepared = state.prepared
    return slot | {
        "prompt_tokens": len(prepared.ids), "cached_tokens": choice.cached,
        "processed_tokens": choice.processed, "predicted_tokens": choice.tokens,
        "max_tokens": prepared.max_tokens, "choice": choice.index,
    }  # fmt: skip


def list_gauges(ready: Ready, gauges: Gauges, present: int) -> dict[str, float]:
    """Return numbers by name, for /metrics."""
    used = gauges.pages - gauges.pages_free if gauges.pages else 0
    busy = ready.lanes - gauges.lanes_free if gauges.pages else 0
    return {
        "running": busy,
        "waiting": max(0, present - busy),
        "lanes": ready.lanes,
        "kv_pages": ready.kv_tokens // 64,
        "kv_pages_used": used,
        "kv_tokens_used": used * 64,
        "kv_usage_ratio": used / gauges.pages if gauges.pages else 0.0,
        "rounds": gauges.rounds,
        "busy_lanes_per_round": gauges.lane_rounds / gauges.rounds if gauges.rounds else 0.0,
        **{f"prefix_{name}": count for name, count in gauges.prefix.items()},
    }
