"""Prefill in chunks, decoding after it, and everything against float32 on the processor."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gpu_engine.bench import SPECULATIONS, Bench, greedy, prompt_logits
from gpu_engine.rows import BOUND, Row, compare, compare_tokens, compare_tops

LENGTH, CHUNKS = 1100, (1, 64, 127, 1024)
# Tokens one by one take a whole pass each.
SHORT = 150
CONTEXT = 1280


def check_prefill(bench: Bench) -> Iterator[Row]:
    """N-61, N-63 on the demo checkpoint."""
    artifact = bench.shelf.take("demo")
    ids = bench.prompt(LENGTH, 1)
    engine = bench.start(artifact, max_context=CONTEXT)
    whole = prompt_logits(engine, ids)
    exact = prompt_logits(bench.start_exact(artifact, max_context=CONTEXT), ids)
    yield compare("whole prompt against float32", whole, exact)
    yield compare_tops("whole prompt, clear tops", whole, exact)
    for chunk in CHUNKS:
        count = SHORT if chunk == 1 else LENGTH
        got = prompt_logits(engine, ids[:count], chunk)
        yield compare(f"chunks of {chunk}", got, whole[:count])
        yield compare_tops(f"chunks of {chunk}, clear tops", got, whole[:count])


def check_continuations(bench: Bench) -> Iterator[Row]:
    """N-63: tokens after chunks of every size, with and without drafts."""
    artifact = bench.shelf.take("demo")
    for name, options in SPECULATIONS.items():
        want, scale = None, 1.0
        for chunk in (2048, *CHUNKS):
            engine = bench.start(artifact, max_context=CONTEXT, prefill_chunk=chunk, **options)
            ids = bench.prompt(SHORT if chunk == 1 else LENGTH, 2)
            if want is None or chunk == 1:
                lone = bench.start(artifact, max_context=CONTEXT, prefill_chunk=2048)
                want = greedy(lone, ids, 48)
                scale = float(prompt_logits(lone, ids[:SHORT]).abs().max())
            got = greedy(engine, ids, 48)
            yield compare_tokens(f"{name}, chunks of {chunk}, tokens", got.tokens, want, scale)
            if chunk == 1:
                want = None


def check_decoding(bench: Bench) -> Iterator[Row]:
    """N-63: tokens decoded one by one against one pass over all of them."""
    for model in ("demo", "dense-128", "moe-256"):
        engine, ids = bench.start(bench.shelf.take(model)), bench.prompt(30, 3)
        got = greedy(engine, ids, 100)
        rows = prompt_logits(engine, (*ids, *got.tokens))[len(ids) - 1 : -1]
        scale = float(rows.abs().max())
        logs = rows.log_softmax(-1)
        mine = torch.tensor([score.logprob for score in got.scores])
        theirs = logs.gather(1, torch.tensor(got.tokens)[:, None]).squeeze(1)
        error = float((mine - theirs).abs().max())
        yield Row(f"{model}, scores", error / (2 * BOUND * scale), f"error {error:.2e}")
        lead = logs.max(1).values - theirs
        worst = float(lead.max())
        yield Row(f"{model}, tops", worst / (2 * BOUND * scale), f"largest lead {worst:.2e}")
