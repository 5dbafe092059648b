"""The budget of an engine against what the device really holds (MEM-1), component by component."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import torch

from builders.tensor_bytes import bytes_of, tensors_of
from gpu_engine.allocation import largest_grid
from gpu_engine.bench import Bench, release, replaced, taken_bytes
from gpu_engine.rows import Row
from ninfer_runtime.config import EngineConfig
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.warm_up import warm_up, warm_up_vision
from ninfer_runtime.weights.budget import graph_pool
from ninfer_runtime.weights.load_record import LoadRecord
from ninfer_runtime.weights.source import WeightSource
from ninfer_runtime.weights.transfers import ValueTransfer

SYNTHETIC = {
    "27b": "qwen3.8-27b:nvfp4:components=text+mtp+vision",
    "35b": "qwen3.6-35b-a3b:nvfp4:components=text+mtp+vision",
}
_OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"lanes": 8, "speculator": "mtp", "draft_tokens": 3, "prefix_reuse": True},
)  # fmt: skip
# The sum of all uses may be this far above what is taken (MEM-1).
SHARE, LEAST = 0.02, 64 << 20


@dataclass(frozen=True)
class MemoryCase:
    """An engine of a model of the shelf, or of a synthetic one."""

    model: str
    max_context: int
    options: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.model}, {self.options.get('lanes', 1)} lanes"


def check_memory(bench: Bench) -> Iterator[Row]:
    """The demo checkpoint and a small mixture of experts, with and without drafts and lanes."""
    for model in ("demo", "moe-256"):
        for options in _OPTIONS:
            yield from run_alone(bench, MemoryCase(model, 4096, options))


def check_large_memory(bench: Bench) -> Iterator[Row]:
    """Models of real sizes, whose weights are allocated and not read."""
    for model in SYNTHETIC:
        for options in _OPTIONS:
            yield from run_alone(bench, MemoryCase(model, 32768, options))


def run_alone(bench: Bench, case: MemoryCase) -> Iterator[Row]:
    """Compare in a process of its own: what libraries take once, and for which of their kernels,
    counts for every engine."""
    release()
    if not bench.on_gpu:
        yield from compare_budget(bench, case)
        return
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield from pool.submit(list_rows, bench, case).result()


def list_rows(bench: Bench, case: MemoryCase) -> list[Row]:
    return list(compare_budget(bench, case))


def leave_empty(self: WeightSource, progress: Any) -> LoadRecord:
    """Stand in for loading: weights are zeros, whose logits are zeros."""
    for transfer in self._transfers:
        places = transfer.target if isinstance(transfer, ValueTransfer) else transfer.targets
        for tensor in tensors_of(places):
            tensor.zero_()
    self._transfers.clear()
    return LoadRecord(0, 0.0, 0.0, 0.0, 0.0)


def compare_budget(bench: Bench, case: MemoryCase) -> Iterator[Row]:
    """Start an engine and say, use by use, what was planned and what is there."""
    name, before = case.name, taken_bytes(bench.device)
    engine = start(bench, case)
    budget = engine.plan.budget
    for use, measured in measure_uses(engine).items():
        planned = budget.parts.get(use, 0)
        yield Row(f"{name}, {use}", abs(measured - planned) / max(planned * SHARE, 1),
                  f"planned {planned}, measured {measured}")  # fmt: skip
    if not bench.on_gpu:
        return
    used, reserved = taken_bytes(bench.device) - before, torch.cuda.memory_reserved()
    peak = measure_peak(engine)
    yield Row(f"{name}, workspace", peak / budget.workspace,
              f"planned {budget.workspace}, largest use {peak}")  # fmt: skip
    pool, planned = measure_graph_pool(), graph_pool(engine.geometry, engine.plan.shape).total
    yield Row(f"{name}, graph pool", above(planned, pool),
              f"planned {planned}, measured {pool}")  # fmt: skip
    beside, graphs = used - reserved, budget.graphs - planned
    yield Row(f"{name}, graphs and libraries", 0.0,
              f"planned {graphs} + {budget.libraries}, of that in torch "
              f"{2 * engine.plan.costs.products}; measured {beside} beside torch for "
              f"{engine.plan.shape.graphs} graphs")  # fmt: skip
    yield Row(f"{name}, total", above(budget.total, used),
              f"planned {budget.total}, measured {used}, "
              f"{(budget.total - used) / used:+.2%}; torch holds {reserved}")  # fmt: skip


def start(bench: Bench, case: MemoryCase) -> Engine:
    """Return the engine of a case, with a cache for all lanes."""
    capacity = case.max_context * case.options.get("lanes", 1)
    config = EngineConfig(
        device=bench.device, max_context=case.max_context, kv_capacity=capacity, **case.options
    )
    if case.model not in SYNTHETIC:
        return Engine(bench.shelf.take(case.model), config)
    from ninfer_tools.synthetic.artifact import open_synthetic

    with replaced(WeightSource, "load", leave_empty):
        return Engine(open_synthetic(SYNTHETIC[case.model]), config)


def above(planned: int, measured: int) -> float:
    """Return how far a plan is above what is taken, as a share of what it may be; below it may not
    be at all."""
    if planned < measured:
        return float("inf")
    return (planned - measured) / max(SHARE * measured, LEAST)


def measure_uses(engine: Engine) -> dict[str, int]:
    """Return the bytes of the tensors that are there, by the budget's names of uses."""
    model, state = engine.model, engine.state
    recurrent = state.decoder.recurrent
    records = bytes_of([layer.records for layer in recurrent.layers])
    uses = {
        "weights of text": bytes_of(model.text),
        "key/value pages": bytes_of([state.decoder.kv, state.mtp]),
        "recurrent state": bytes_of([recurrent, state.snapshots]) - records,
        "replay records": records,
        "lanes": bytes_of(engine.table),
    }
    if model.mtp is not None:
        uses["weights of mtp"] = bytes_of(model.mtp)
    if model.vision is not None:
        uses["weights of vision"] = bytes_of(model.vision) - bytes_of(model.vision.rotation)
    return uses


def measure_peak(engine: Engine) -> int:
    """Return the most bytes that the largest passes hold beside what is always there."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    always = torch.cuda.memory_allocated()
    warm_up(engine.model, engine.state, engine.settings)
    if engine.model.vision is not None:
        warm_up_vision(engine.model, largest_grid(engine))
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - always


def measure_graph_pool() -> int:
    """Return the bytes of the segments that belong to captured graphs."""
    segments = torch.cuda.memory_snapshot()
    return sum(s["total_size"] for s in segments if tuple(s["segment_pool_id"]) != (0, 0))
