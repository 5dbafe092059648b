"""Engines of the demo model, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from builders.engines import make_engine
from builders.live_hosts import LiveHost
from ninfer_formats.reader import Artifact, open_artifact
from ninfer_runtime.frontend.tokenizer import Tokenizer, load_tokenizer
from ninfer_runtime.server.engine_process.grammar import Grammars

VOCABULARY = 4096


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors: more threads only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def demo(demo_file: Path) -> Artifact:
    return open_artifact(demo_file)


@pytest.fixture(scope="session")
def tokenizer(demo: Artifact) -> Tokenizer:
    return load_tokenizer(demo)


@pytest.fixture(scope="session")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, VOCABULARY)


@pytest.fixture
def host(
    demo: Artifact, tokenizer: Tokenizer, grammars: Grammars
) -> Iterator[Callable[..., LiveHost]]:
    """Start a loop with an engine of its own, or with `engine`."""
    started: list[LiveHost] = []

    def start(engine: Any = None, **options: Any) -> LiveHost:
        options.setdefault("max_context", 512)
        engine = engine or make_engine(demo, **options)
        started.append(LiveHost(engine, tokenizer, grammars))
        return started[-1]

    yield start
    for one in started:
        if one.thread.is_alive():
            one.stop()
