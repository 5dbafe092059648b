"""GET /metrics: counts since the start and gauges, in Prometheus' text form."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from ninfer_runtime.server.backend import Backend
from ninfer_runtime.server.documents import describe_reading
from ninfer_runtime.server.request_record import RequestRecord

router = APIRouter()

_TOTALS = {
    "llamacpp:prompt_tokens": "prompt tokens that were computed",
    "llamacpp:prompt_seconds": "seconds from admission to the first token",
    "llamacpp:tokens_predicted": "generated tokens",
    "llamacpp:tokens_predicted_seconds": "seconds from the first token to the last",
    "ninfer:requests": "requests with a body",
    "ninfer:requests_failed": "requests that ended with status 500 or above, or an error event",
    "ninfer:requests_rejected": "requests refused with a status below 500",
    "ninfer:requests_cancelled": "requests whose client went away",
    "ninfer:requests_admitted": "requests that got a lane",
    "ninfer:prefix_cache_hit_tokens": "prompt tokens not computed again",
    "ninfer:reused_prompt_tokens": "prompt tokens not computed again",
    "ninfer:reasoning_tokens": "generated tokens of reasoning",
    "ninfer:draft_tokens": "drafted tokens",
    "ninfer:draft_accepted_tokens": "drafted tokens that were kept",
}

# The service's counters that llama.cpp has under another name.
_LLAMACPP = {
    "running": "requests_processing", "waiting": "requests_deferred",
    "kv_usage_ratio": "kv_cache_usage_ratio", "kv_tokens_used": "kv_cache_tokens",
    "rounds": "n_decode_total", "busy_lanes_per_round": "n_busy_slots_per_decode",
}  # fmt: skip


class Metrics:
    """Adds up ended requests and asks the service for the rest when it is read."""

    def __init__(self, service: Backend) -> None:
        self._service, self._began = service, time.time()
        self._totals = dict.fromkeys(_TOTALS, 0.0)
        self._lock = threading.Lock()
        self._registry = CollectorRegistry()
        self._registry.register(self)  # pyright: ignore[reportArgumentType]

    def report(self, record: RequestRecord) -> None:
        """Add an ended request."""
        with self._lock:
            for name, amount in _count(record).items():
                self._totals[name] += amount

    def write(self) -> bytes:
        """Return the text form."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Give the families of metrics; called by the registry."""
        with self._lock:
            totals = dict(self._totals)
        for name, text in _TOTALS.items():
            yield CounterMetricFamily(name, text, totals[name])
        yield from _collect_gauges(totals, self._service.counters())
        age = time.time() - self._began
        yield GaugeMetricFamily("ninfer:uptime_seconds", "seconds since the start", age)

    def describe(self) -> list[Metric]:
        return []


@router.get("/metrics", **describe_reading("Counts and gauges", "text"))
async def read_metrics(request: Request) -> Response:
    return Response(request.app.state.metrics.write(), media_type=CONTENT_TYPE_LATEST)


def _count(record: RequestRecord) -> dict[str, float]:
    status, finished = record.status or 500, record.finished
    computed = (record.prompt or 0) - (record.cached or 0) if finished else 0
    failed = record.error is not None and (status >= 500 or status == 200)
    return {
        "ninfer:requests": 1,
        "ninfer:requests_failed": failed,
        "ninfer:requests_rejected": 400 <= status < 500 and not record.cancelled,
        "ninfer:requests_cancelled": record.cancelled,
        "ninfer:requests_admitted": record.cached is not None,
        "llamacpp:prompt_tokens": computed,
        "llamacpp:prompt_seconds": max((d.timings.prefill for d in finished), default=0.0),
        "llamacpp:tokens_predicted": record.sum_of("completion"),
        "llamacpp:tokens_predicted_seconds": max((d.timings.decode for d in finished), default=0.0),
        "ninfer:prefix_cache_hit_tokens": record.cached or 0,
        "ninfer:reused_prompt_tokens": record.cached or 0,
        "ninfer:reasoning_tokens": record.sum_of("reasoning"),
        "ninfer:draft_tokens": record.sum_of("drafted"),
        "ninfer:draft_accepted_tokens": record.sum_of("accepted"),
    }


def _collect_gauges(totals: Mapping[str, float], counters: Mapping[str, float]) -> Iterator[Metric]:
    rates = {
        "llamacpp:prompt_tokens_seconds": ("llamacpp:prompt_tokens", "llamacpp:prompt_seconds"),
        "llamacpp:predicted_tokens_seconds": (
            "llamacpp:tokens_predicted", "llamacpp:tokens_predicted_seconds",
        ),
    }  # fmt: skip
    for name, (amount, seconds) in rates.items():
        rate = totals[amount] / totals[seconds] if totals[seconds] else 0.0
        yield GaugeMetricFamily(name, "tokens per second since the start", rate)
    for name, value in counters.items():
        yield GaugeMetricFamily(f"ninfer:{name}", name.replace("_", " "), value)
        if name in _LLAMACPP:
            yield GaugeMetricFamily(f"llamacpp:{_LLAMACPP[name]}", name.replace("_", " "), value)
