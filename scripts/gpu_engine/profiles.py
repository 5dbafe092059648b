"""Every weight profile and cache type against float32 on the processor, with the same words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from builders.engines import Answer
from gpu_engine.bench import Bench, greedy, prompt_logits
from gpu_engine.models import PROFILES, RANDOM
from gpu_engine.rows import Row, compare, compare_tokens, compare_tops, expect
from ninfer_kernels.moe import op as moe_op
from ninfer_runtime.engine.engine import Engine

KV_KINDS = ("bf16", "fp8", "int8")
LENGTH, TOKENS = 150, 32
# Router logits closer than this may choose other experts in bfloat16 (N-61).
_UNDECIDED = 0.05


def check_profiles(bench: Bench) -> Iterator[Row]:
    """N-61, N-62."""
    ids = bench.prompt(LENGTH, 60)
    for model in RANDOM:
        for profile in PROFILES:
            artifact = bench.shelf.take(model, profile)
            for kind in KV_KINDS:
                exact = bench.start_exact(artifact, kv_kind=kind)
                with decided_rows(LENGTH) as decided:
                    want = prompt_logits(exact, ids)
                answer = greedy(exact, ids, TOKENS)
                engine = bench.start(artifact, kv_kind=kind)
                case = f"{model} {profile}, kv {kind}"
                yield from compare_engine(case, engine, ids, want, answer, decided)


def compare_engine(
    case: str,
    engine: Engine,
    ids: tuple[int, ...],
    want: torch.Tensor,
    answer: Answer,
    decided: torch.Tensor,
) -> Iterator[Row]:
    """Hold an engine's logits and tokens against exact ones; rows that are not decided are exempt
    from the bound on errors. Every row of a dense model is decided."""
    got = prompt_logits(engine, ids, 64)
    share = float(decided.float().mean())
    if share < 1:
        yield expect(f"{case}, decided", share > 0.3, f"{share:.0%} of rows")
    scale = float(want.abs().max())
    yield compare(f"{case}, logits", got[decided], want[decided])
    yield compare_tops(f"{case}, clear tops", got, want)
    if share == 1:
        tokens = greedy(engine, ids, TOKENS).tokens
        yield compare_tokens(f"{case}, tokens", tokens, answer, scale)


@contextmanager
def decided_rows(rows: int) -> Iterator[torch.Tensor]:
    """Yield bool [rows] that becomes False where a router on the processor could choose others."""
    decided, route = torch.ones(rows, dtype=torch.bool), moe_op.route

    def watch(logits: torch.Tensor, top_k: int, **options: Any) -> Any:
        if logits.shape[0] == rows:
            best = logits.float().topk(min(top_k + 1, logits.shape[1]), dim=1).values
            decided.logical_and_((best[:, top_k - 1] - best[:, -1] > _UNDECIDED).cpu())
        return route(logits, top_k, **options)

    moe_op.route = watch
    try:
        yield decided
    finally:
        moe_op.route = route
