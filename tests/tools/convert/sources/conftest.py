"""Tiny checkpoints, written and checked."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from builders.checkpoints import TinyCheckpoint
from ninfer_tools.convert.sources.checkpoint import Checkpoint, open_checkpoint
from ninfer_tools.convert.sources.preflight import Preflight, find_problems

Save = Callable[..., Checkpoint]
Check = Callable[..., Preflight]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Write a checkpoint into a folder of its own and open it."""

    def write(tiny: TinyCheckpoint, name: str = "base", shards: int = 1) -> Checkpoint:
        return open_checkpoint(tiny.write(tmp_path / name, shards))

    return write


@pytest.fixture
def check(save: Save) -> Check:
    """Write checkpoints (base first, others by name) and look for problems."""

    runs = count()

    def run(
        tiny: TinyCheckpoint, others: dict[str, TinyCheckpoint] | None = None, **options: Any
    ) -> Preflight:
        # Folders of earlier runs stay mapped: never write into them.
        run = f"run{next(runs)}"
        given = {"base": tiny, **(others or {})}
        opened = {name: save(each, f"{run}/{name}") for name, each in given.items()}
        return find_problems(opened, **options)

    return run
