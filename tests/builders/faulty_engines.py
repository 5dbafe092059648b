"""Engines that fail when told to, made in the engine process by name."""

from __future__ import annotations

import time
from typing import Any

from ninfer_formats.errors import UsageError
from ninfer_runtime.engine.engine import Engine

GOOD_STEPS = 5


def fail_in_step(artifact: Any, config: Any, progress: Any) -> Engine:
    """Return an engine whose sixth step raises, once."""
    engine = Engine(artifact, config, progress)
    step, left = engine.step, [GOOD_STEPS]

    def count() -> Any:
        left[0] -= 1
        if left[0] == -1:
            raise RuntimeError("an illegal memory access was encountered\nmore lines")
        return step()

    engine.step = count  # type: ignore[method-assign]
    return engine


def fail_at_start(artifact: Any, config: Any, progress: Any) -> Engine:
    raise UsageError("--max-context is out of range", got=7, want="less")


def hang_in_step(artifact: Any, config: Any, progress: Any) -> Engine:
    """Return an engine whose steps never end."""
    engine = Engine(artifact, config, progress)
    engine.step = lambda: time.sleep(1000)  # type: ignore[method-assign]
    return engine
