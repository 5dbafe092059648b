"""A device with too little memory: one error, in numbers, before and during the start (MEM-9)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from gpu_engine.bench import Bench, release, replaced
from gpu_engine.rows import Row, expect
from ninfer_runtime.config import EngineConfig
from ninfer_runtime.engine import engine as engine_module
from ninfer_runtime.engine import graphs
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.errors import StartupError
from ninfer_runtime.weights import preflight

_NEEDS = re.compile(r"needs (\d+) bytes, (\d+) are available")


def check_shortage(bench: Bench) -> Iterator[Row]:
    """Too large at once; the driver refusing what was thought to be there; running out while
    graphs are captured, and in the warm-up."""
    yield start(bench, "too large a cache", pages=True)
    if bench.on_gpu:
        with replaced(preflight, "free_memory", lambda device: 1 << 50):
            yield start(bench, "more than the driver has", pages=True)
    with replaced(engine_module.Engine, "_start", lambda self: exhaust(bench)):
        yield start(bench, "out of memory in the warm-up")
    release()
    engine = bench.start(bench.shelf.take("demo"))
    yield expect("an engine starts afterwards", not engine.busy)
    if bench.on_gpu:
        del engine
        with replaced(graphs, "run_round", exhaust_captures(bench)):
            yield start(bench, "out of memory in a capture")


def exhaust_captures(bench: Bench) -> Any:
    """Return rounds that take all memory while they are captured."""
    run_round = graphs.run_round

    def run(*arguments: Any) -> Any:
        if torch.cuda.is_current_stream_capturing():
            exhaust(bench)
        return run_round(*arguments)

    return run


def start(bench: Bench, case: str, pages: bool = False) -> Row:
    """Return whether a start ends with the error, in one line and with numbers that fit."""
    release()
    config = EngineConfig(device=bench.device, max_context=512, kv_capacity=512)
    try:
        with grown_cache(pages):
            Engine(bench.shelf.take("demo"), config)
    except StartupError as error:
        found = _NEEDS.search(str(error))
        one_line = "\n" not in str(error)
        holds = bool(found) and one_line and int(found[1]) > int(found[2])
        return expect(case, holds, str(error))
    return expect(case, False, "no error")


@contextmanager
def grown_cache(grown: bool) -> Iterator[None]:
    """Let an engine want ten million pages."""
    if not grown:
        yield
        return
    resolve = engine_module.resolve

    def grow(*arguments: Any) -> Any:
        return replace(resolve(*arguments), pages=10_000_000)

    with replaced(engine_module, "resolve", grow):
        yield


def exhaust(bench: Bench) -> None:
    """Take memory until there is none; a processor is spared that."""
    if not bench.on_gpu:
        raise torch.OutOfMemoryError("out of memory")
    held = []
    while True:
        held.append(torch.empty(1 << 30, dtype=torch.uint8, device=bench.device))
