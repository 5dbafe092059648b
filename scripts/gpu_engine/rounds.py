"""Rounds: captured or not, ahead or not, shared or alone, with drafts or without."""

from __future__ import annotations

import random
from collections.abc import Iterator

from builders.engines import Answer, collect
from gpu_engine.bench import MTP, SPECULATIONS, Bench, greedy, prompt_logits
from gpu_engine.rows import Row, compare_tokens, expect
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.request import CANCELLED, Request, Sampling

SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.7, top_k=20, seed=1),
    Sampling(temperature=1.3, top_p=0.9, seed=2),
    Sampling(repetition=1.3),
    Sampling(temperature=0.9, top_k=40, presence=0.5, frequency=0.5, seed=4),
    Sampling(temperature=1.0, min_p=0.05, seed=3, bias={7: 4.0, 8: -30.0}),
)
MODELS = ("demo", "dense-256", "moe-256")


def run(engine: Engine, requests: list[Request]) -> list[Answer]:
    """Run requests at once; return their answers in order."""
    numbers, answers = [engine.add(request) for request in requests], {}
    while engine.busy:
        collect(answers, engine.step())
    return [answers[number] for number in numbers]


def make_requests(bench: Bench, count: int, tokens: int = 40) -> list[Request]:
    return [
        Request(bench.prompt(12 + 9 * i, 10 + i), tokens, SAMPLINGS[i % len(SAMPLINGS)], logprobs=4)
        for i in range(count)
    ]


def check_capture(bench: Bench) -> Iterator[Row]:
    """EN-2, EN-7: captured and not, with look-ahead and without, drawn and greedy, in four lanes:
    the very same tokens."""
    requests = make_requests(bench, 8)
    for model in MODELS:
        for name, options in SPECULATIONS.items():
            want = None
            for captured in (True, False):
                for ahead in (True, False):
                    engine = bench.start(
                        bench.shelf.take(model), lanes=4, cuda_graph=captured, look_ahead=ahead,
                        **options,
                    )  # fmt: skip
                    got = [answer.tokens for answer in run(engine, requests)]
                    want = want or got
                    case = f"{model} {name}, captured {captured}, ahead {ahead}"
                    yield expect(case, got == want, f"{sum(map(len, got))} tokens")


def check_lanes(bench: Bench) -> Iterator[Row]:
    """N-65: eight lanes, eleven requests that join at random rounds, one aborted. The same tokens
    as alone where rounds have up to 16 columns; above, products are of another kind, and greedy
    tokens are the same where the lead exceeds the error."""
    for model in MODELS:
        for name, options in SPECULATIONS.items():
            artifact = bench.shelf.take(model)
            shared = bench.start(artifact, lanes=8, prefill_chunk=50, **options)
            drawn = name == "plain"
            requests = make_requests(bench, 11)
            if not drawn:
                requests = [Request(r.prompt, r.max_tokens, logprobs=4) for r in requests]
            got, aborted = join_and_leave(shared, requests, bench.seed), 3
            scale = float(prompt_logits(shared, requests[5].prompt).abs().max())
            lone = bench.start(artifact, prefill_chunk=50, **options)
            for i, mine in enumerate(got):
                want = run(lone, [requests[i]])[0]
                case = f"{model} {name}, request {i} among eight lanes"
                if i == aborted:
                    want.tokens = want.tokens[: len(mine.tokens)]
                    yield expect(f"{case}, aborted", mine.finish == CANCELLED)
                if drawn:
                    yield expect(case, mine.tokens == want.tokens, f"{len(mine.tokens)} tokens")
                else:
                    yield compare_tokens(case, mine.tokens, want, scale)
            yield expect(f"{model} {name}, pages", shared.pages.free == shared.settings.pages)


def join_and_leave(engine: Engine, requests: list[Request], seed: int) -> list[Answer]:
    """Add requests at random rounds, cancel the fourth after some tokens of its own."""
    chance, answers, numbers = random.Random(seed), {}, []
    while engine.busy or len(numbers) < len(requests):
        if len(numbers) < len(requests) and chance.random() < 0.7:
            numbers.append(engine.add(requests[len(numbers)]))
        collect(answers, engine.step())
        if len(numbers) > 3 and len(answers.get(numbers[3], Answer()).tokens) >= 4:
            step = engine.cancel(numbers[3])
            if step is not None:
                collect(answers, [step])
    return [answers[number] for number in numbers]


def check_drafts(bench: Bench) -> Iterator[Row]:
    """N-64: greedy tokens with 1 to 7 drafts are those without, in bfloat16 up to a place where
    the lead of the first candidate is below twice the error."""
    for model, tokens in (("demo", 256), ("dense-128", 64), ("moe-256", 64)):
        artifact, ids = bench.shelf.take(model), bench.prompt(40, 30)
        engine = bench.start(artifact)
        want, scale = greedy(engine, ids, tokens), float(prompt_logits(engine, ids).abs().max())
        for drafts in range(1, 8):
            engine = bench.start(artifact, **{**MTP, "draft_tokens": drafts})
            got = greedy(engine, ids, tokens)
            yield compare_tokens(f"{model}, {drafts} drafts", got.tokens, want, scale)
