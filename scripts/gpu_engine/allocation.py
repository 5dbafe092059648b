"""Requests take nothing of the device: its allocator never asks the driver after the start."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch

from builders.engines import collect
from gpu_engine.bench import SPECULATIONS, Bench
from gpu_engine.media import GRIDS, make_picture
from gpu_engine.rows import Row, expect
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.request import Request, Sampling
from ninfer_runtime.engine.warm_up import warm_up_vision
from ninfer_runtime.models.qwen3_5.patch_grid import PatchGrid

LENGTHS = (1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 128, 129, 500, 1023, 1024, 1025, 2000)
CONTEXT = 2048


def check_allocation(bench: Bench) -> Iterator[Row]:
    """MEM-19: prompts of every length, every kind of sampling, masks, scores, media, endings of
    every kind, twice in another order."""
    for model in ("demo", "moe-256"):
        for name, options in SPECULATIONS.items():
            for captured in (True, False):
                engine = bench.start(
                    bench.shelf.take(model), lanes=8, max_context=CONTEXT, cuda_graph=captured,
                    prefill_chunk=1024, prefix_reuse=captured, host_cache_mib=64, **options,
                )  # fmt: skip
                before = held(bench)
                mixed = [run_mix(bench, engine, salt) for salt in range(2)]
                after = held(bench)
                case = f"{model} {name}, captured {captured}"
                detail = f"{sum(mixed)} requests, {before} -> {after}"
                yield expect(f"{case}, driver not asked", before == after, detail)


def held(bench: Bench) -> tuple[int, int]:
    """Return how often the allocator asked the driver for memory, and the bytes it holds."""
    if not bench.on_gpu:
        return 0, 0
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    return stats["num_device_alloc"], stats["reserved_bytes.all.current"]


def run_mix(bench: Bench, engine: Engine, salt: int) -> int:
    """Run hostile requests in an order of their own; return how many."""
    chance = random.Random(100 * bench.seed + salt)
    if engine.model.vision is not None:
        warm_up_vision(engine.model, largest_grid(engine))
    requests = [make_request(bench, engine, length, chance) for length in LENGTHS]
    for kind in GRIDS:
        picture = make_picture(bench, kind)
        requests.append(Request(picture.ids, 20, media=picture.show(engine)))
    chance.shuffle(requests)
    waiting, answers, numbers = list(requests), {}, []
    while engine.busy or waiting:
        if waiting and chance.random() < 0.4:
            numbers.append(engine.add(waiting.pop()))
        collect(answers, engine.step())
        if numbers and chance.random() < 0.02:
            step = engine.cancel(chance.choice(numbers))
            collect(answers, [step] if step else [])
        if chance.random() < 0.02:
            poison(engine, chance)
    return len(requests)


def largest_grid(engine: Engine) -> PatchGrid:
    """Return the squarest grid of the most patches that the plan allows; on a processor, which
    would take minutes, a smaller one."""
    most = engine.plan.shape.patches
    if engine.settings.device.type == "cpu":
        most = min(most, 1024)
    side = max(2, int(most**0.5) // 2 * 2)
    return PatchGrid(1, side, max(2, most // side // 2 * 2))


def make_request(bench: Bench, engine: Engine, length: int, chance: random.Random) -> Request:
    options: dict[str, Any] = {"logprobs": chance.choice([None, 0, 5, 64])}
    sampling = chance.choice(
        [
            Sampling(),
            Sampling(temperature=1.0, seed=length),
            Sampling(temperature=0.7, top_k=20, presence=1.5, seed=length),
            Sampling(temperature=1.2, top_p=0.9, repetition=1.1, seed=length),
            Sampling(bias=dict.fromkeys(range(280), 0.5)),
        ]
    )
    if chance.random() < 0.2:
        words = -(-engine.geometry.text.vocab_size // 32)
        options["mask"] = lambda emitted: torch.full((words,), 0x55555555, dtype=torch.int32)
    stops = tuple(chance.sample(range(280), 3))
    return Request(bench.prompt(length, length), chance.randint(1, 40), sampling, stops, **options)


def poison(engine: Engine, chance: random.Random) -> None:
    """Let some lane's state be NaN, if one runs: its request ends with a look at every layer."""
    lanes = [s.lane for s in engine._sequences.values() if s.lane >= 0]
    if lanes:
        layer = engine.state.decoder.recurrent.layers[0]
        layer.state[chance.choice(lanes)] = float("nan")
