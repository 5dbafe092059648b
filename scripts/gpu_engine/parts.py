"""The parts of the engine's check, by name, in the order they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from gpu_engine.allocation import check_allocation
from gpu_engine.bench import Bench
from gpu_engine.media import check_media
from gpu_engine.memory import check_large_memory, check_memory
from gpu_engine.prefill import check_continuations, check_decoding, check_prefill
from gpu_engine.prefixes import check_large_prefixes, check_prefixes
from gpu_engine.profiles import check_profiles
from gpu_engine.rounds import check_capture, check_drafts, check_lanes
from gpu_engine.rows import Row
from gpu_engine.shortage import check_shortage
from gpu_engine.state import check_masks, check_poison, check_rewinding, check_snapshots

PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "memory": check_memory,
    "large-memory": check_large_memory,
    "prefill": check_prefill,
    "continuation": check_continuations,
    "decoding": check_decoding,
    "capture": check_capture,
    "lanes": check_lanes,
    "drafts": check_drafts,
    "snapshot": check_snapshots,
    "rewind": check_rewinding,
    "mask": check_masks,
    "poison": check_poison,
    "media": check_media,
    "profiles": check_profiles,
    "prefixes": check_prefixes,
    "large-prefixes": check_large_prefixes,
    "allocation": check_allocation,
    "shortage": check_shortage,
}


@dataclass(frozen=True)
class Finding:
    """One row of one part, as gpu_check.py's results are."""

    part: str
    row: Row
    seconds: float
    trouble: str = ""

    @property
    def record(self) -> dict[str, Any]:
        return asdict(self)


def run_parts(bench: Bench, names: list[str], limit: float) -> Iterator[Finding]:
    """Yield what the parts find, until the time ends; whatever goes wrong is a finding.

    What time did not allow is a finding of its own: not passed, and no error either.
    """
    end = time.monotonic() + limit
    for name in names:
        began = time.monotonic()
        if began > end:
            yield unfinished(name, "not run: out of time")
            continue
        try:
            for count, row in enumerate(PARTS[name](bench), 1):
                now = time.monotonic()
                yield Finding(name, row, now - began)
                began = now
                if now > end:
                    yield unfinished(name, f"not finished: out of time after {count} rows")
                    break
        except Exception as error:  # One broken part must not hide the others.
            last = (str(error).strip().splitlines() or [""])[-1]
            trouble = f"{type(error).__name__}: {last}"[:300]
            yield Finding(name, Row(name, float("inf")), time.monotonic() - began, trouble)


def unfinished(name: str, why: str) -> Finding:
    """Return the finding of a part that did not come to its end: nothing was measured."""
    return Finding(name, Row(name, float("nan")), 0.0, why)
