"""Engines that reuse prefixes, and requests with what they reused."""

from __future__ import annotations

from typing import Any

from builders.engines import Answer, collect, make_engine
from ninfer_formats.reader import Artifact
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.request import Request
from ninfer_runtime.prefix.reuse import Reuse


def make_reusing(artifact: Artifact, **options: Any) -> Engine:
    """Return an engine as `make_engine` makes, with prefix reuse."""
    return make_engine(artifact, **{"prefix_reuse": True, "host_cache_mib": 64, **options})


def ask(engine: Engine, request: Request) -> tuple[Answer, Reuse]:
    """Run one request, alone or beside others; return its answer and what it reused."""
    number = engine.add(request)
    answers: dict[int, Answer] = {}
    reuse = None
    sequence = engine.find(number)
    while engine.find(number) is not None:
        collect(answers, engine.step())
        assert sequence is not None
        reuse = sequence.reuse
    assert reuse is not None
    return answers[number], reuse


def run_until(engine: Engine, number: int, tokens: int) -> Answer:
    """Step until a request has at least so many tokens; return what it said."""
    answers: dict[int, Answer] = {number: Answer()}
    while len(answers[number].tokens) < tokens:
        collect(answers, engine.step())
    return answers[number]


def require_all_free(engine: Engine) -> None:
    """Drop every snapshot; then nothing may be held by anything."""
    cache = engine.prefixes.cache
    assert cache is not None
    cache.drop(list(cache.snapshots))
    store = cache.store
    assert engine.pages.free == engine.settings.pages
    assert len(store.slots) == engine.settings.snapshots
    assert len(store.host_slots) == store.host.slot_count
    assert len(store.host_pages) == store.host.page_count
    assert not cache.snapshots and not cache.blocks and not cache.tree.root.children
