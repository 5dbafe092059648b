"""Every weight profile and cache type against float32 on the processor, with the same words."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from builders.engines import Answer
from gpu_engine.bench import Bench, greedy, prompt_logits
from gpu_engine.models import PROFILES, RANDOM
from gpu_engine.noise import (
    Truth,
    compare_to_noise,
    find_truth,
    forced_routers,
    measure_noise,
)
from gpu_engine.rows import Row, compare_tokens, compare_tops
from ninfer_runtime.engine.engine import Engine

KV_KINDS = ("bf16", "fp8", "int8")
LENGTH, TOKENS = 150, 32


def check_profiles(bench: Bench) -> Iterator[Row]:
    """N-62, N-70."""
    ids = bench.prompt(LENGTH, 60)
    for model in RANDOM:
        for profile in PROFILES:
            artifact = bench.shelf.take(model, profile)
            for kind in KV_KINDS:
                exact = bench.start_exact(artifact, kv_kind=kind)
                truth = find_truth(exact, ids)
                noise = measure_noise(bench, artifact, ids, truth, kv_kind=kind)
                answer = greedy(exact, ids, TOKENS)
                engine = bench.start(artifact, kv_kind=kind)
                case = f"{model} {profile}, kv {kind}"
                yield from compare_engine(case, engine, ids, truth, noise, answer)


def compare_engine(
    case: str,
    engine: Engine,
    ids: tuple[int, ...],
    truth: Truth,
    noise: torch.Tensor,
    answer: Answer,
) -> Iterator[Row]:
    """Hold an engine's logits and tokens against exact ones; errors, with the same experts."""
    with forced_routers(truth):
        got = prompt_logits(engine, ids, 64)
    yield from compare_to_noise(case, got, truth.logits, noise)
    yield compare_tops(f"{case}, clear tops", prompt_logits(engine, ids, 64), truth.logits)
    if not truth.choices:
        tokens, scale = greedy(engine, ids, TOKENS).tokens, float(truth.logits.abs().max())
        yield compare_tokens(f"{case}, tokens", tokens, answer, scale)
