"""The budget of an engine against what the device really holds (MEM-1), component by component."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from gpu_engine.allocation import largest_grid
from gpu_engine.bench import Bench, release
from gpu_engine.rows import Row
from ninfer_formats.reader import Artifact
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
# The sum of all uses may be this far off.
SHARE = 0.02


def check_memory(bench: Bench) -> Iterator[Row]:
    """The demo checkpoint and a small mixture of experts, with and without drafts and lanes."""
    for model in ("demo", "moe-256"):
        for options in ({}, {"lanes": 8, "speculator": "mtp", "draft_tokens": 3}):
            name = f"{model}, {options.get('lanes', 1)} lanes"
            yield from compare_budget(bench, name, bench.shelf.take(model), **options)


def check_large_memory(bench: Bench) -> Iterator[Row]:
    """Models of real sizes, whose weights are allocated and not read."""
    from ninfer_tools.synthetic.artifact import open_synthetic

    load = WeightSource.load
    WeightSource.load = leave_empty  # type: ignore[method-assign]
    try:
        for name, spec in SYNTHETIC.items():
            for options in ({}, {"lanes": 8, "speculator": "mtp", "draft_tokens": 3}):
                case = f"{name}, {options.get('lanes', 1)} lanes"
                artifact = open_synthetic(spec)
                yield from compare_budget(bench, case, artifact, max_context=32768, **options)
    finally:
        WeightSource.load = load  # type: ignore[method-assign]


def leave_empty(self: WeightSource, progress: Any) -> LoadRecord:
    """Stand in for loading: weights are zeros, whose logits are zeros."""
    for transfer in self._transfers:
        places = transfer.target if isinstance(transfer, ValueTransfer) else transfer.targets
        for tensor in tensors_of(places):
            tensor.zero_()
    self._transfers.clear()
    return LoadRecord(0, 0.0, 0.0, 0.0, 0.0)


def compare_budget(bench: Bench, name: str, artifact: Artifact, **options: Any) -> Iterator[Row]:
    """Start an engine and say, use by use, what was planned and what is there."""
    release()
    options = {"max_context": 4096, **options}
    options["kv_capacity"] = options["max_context"] * options.get("lanes", 1)
    context, held = device_bytes(bench)
    engine = Engine(artifact, EngineConfig(device=bench.device, **options))
    used, reserved = (a - b for a, b in zip(device_bytes(bench), (context, held), strict=True))
    budget = engine.plan.budget
    yield Row(f"{name}, CUDA context before", 0.0, f"{context}")
    for use, measured in measure_uses(engine).items():
        planned = budget.parts.get(use, 0)
        yield Row(f"{name}, {use}", abs(measured - planned) / max(planned * SHARE, 1),
                  f"planned {planned}, measured {measured}")  # fmt: skip
    if not bench.on_gpu:
        return
    peak = measure_peak(engine)
    yield Row(f"{name}, workspace", peak / budget.workspace,
              f"planned {budget.workspace}, largest use {peak}")  # fmt: skip
    pool, planned = measure_graph_pool(), graph_pool(engine.geometry, engine.plan.shape)
    yield Row(f"{name}, graph pool", pool / (1.02 * planned + (32 << 20)),
              f"planned {planned}, measured {pool}")  # fmt: skip
    beside, graphs = used - reserved, budget.graphs - planned
    yield Row(f"{name}, graphs and libraries", 0.0,
              f"planned {graphs} + {budget.libraries}, measured {beside} for "
              f"{engine.plan.shape.graphs} graphs")  # fmt: skip
    error = abs(used - budget.total) / budget.total
    yield Row(f"{name}, total", error / SHARE,
              f"planned {budget.total}, measured {used}, {error:.2%} apart; "
              f"torch holds {reserved}")  # fmt: skip
    del engine
    gc.collect()


def device_bytes(bench: Bench) -> tuple[int, int]:
    """Return what is taken of the device, and what torch holds of that."""
    if not bench.on_gpu:
        return 0, 0
    torch.zeros(1, device=bench.device)
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free, torch.cuda.memory_reserved()


def measure_uses(engine: Engine) -> dict[str, int]:
    """Return the bytes of the tensors that are there, by the budget's names of uses."""
    model, state = engine.model, engine.state
    recurrent = state.decoder.recurrent
    records = bytes_of([layer.records for layer in recurrent.layers])
    uses = {
        "weights of text": bytes_of(model.text),
        "key/value pages": bytes_of([state.decoder.kv, state.mtp]),
        "recurrent state": bytes_of(recurrent) - records,
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


def tensors_of(item: Any) -> list[torch.Tensor]:
    """Return every tensor inside records, tuples and maps."""
    if isinstance(item, torch.Tensor):
        return [item]
    if isinstance(item, dict):
        return [t for value in item.values() for t in tensors_of(value)]
    if isinstance(item, tuple | list):
        return [t for value in item for t in tensors_of(value)]
    if is_dataclass(item):
        return [t for f in fields(item) for t in tensors_of(getattr(item, f.name))]
    return []


def bytes_of(item: Any) -> int:
    """Return the bytes of the distinct storages inside."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors_of(item)}
    return sum(storage.nbytes() for storage in storages.values())
