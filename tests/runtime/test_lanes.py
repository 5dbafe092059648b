"""Who shares the batch changes nothing: requests that come and go, each as if alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from builders.engines import Answer, answer, collect, make_engine, random_prompt, run_all, score_gap
from ninfer_runtime.engine.request import CANCELLED, Request, Sampling

BOUND = 1e-5  # N-65
MTP = {"speculator": "mtp", "draft_tokens": 2}
# Narrow and wide, with and without penalties.
SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.7, top_k=20, seed=1),
    Sampling(temperature=1.3, top_p=0.9, seed=2),
    Sampling(temperature=1.0, min_p=0.05, seed=3),
    Sampling(repetition=1.3),
    Sampling(temperature=0.9, top_k=40, presence=0.5, frequency=0.5, seed=4),
    Sampling(bias={7: 4.0, 8: -30.0}),
    Sampling(temperature=2.0, seed=5),
)


def make_requests(samplings, count=11):
    random = np.random.default_rng(0)
    return [
        Request(
            random_prompt(int(random.integers(1, 120)), seed=100 + i),
            int(random.integers(8, 40)),
            samplings[i % len(samplings)],
            logprobs=4,
        )
        for i in range(count)
    ]


def run_together(engine, requests, aborted):
    """Add requests at random rounds; cancel request `aborted` after some tokens of its own."""
    random, answers, numbers, busiest = np.random.default_rng(1), {}, [], 0
    while engine.busy or len(numbers) < len(requests):
        busiest = max(busiest, int((engine.table.counts > 0).sum()))
        if len(numbers) < len(requests) and random.random() < 0.7:
            numbers.append(engine.add(requests[len(numbers)]))
        collect(answers, engine.step())
        if len(numbers) > aborted and len(answers.get(numbers[aborted], Answer()).tokens) >= 4:
            step = engine.cancel(numbers[aborted])
            if step is not None:
                collect(answers, [step])
    assert busiest >= 5
    return [answers[number] for number in numbers]


@pytest.mark.parametrize("options", [{}, MTP], ids=["plain", "mtp"])
@pytest.mark.parametrize("samplings", [SAMPLINGS[:1], SAMPLINGS], ids=["greedy", "mixed"])
@pytest.mark.parametrize("name", ["dense", "moe"])
def test_each_of_many_equals_a_lone_run(artifact, name, samplings, options):
    """N-65: eight lanes, eleven requests, one of them aborted in the middle."""
    requests, aborted = make_requests(samplings), 3
    shared = make_engine(artifact(name), lanes=8, prefill_chunk=50, **options)
    lone = make_engine(artifact(name), prefill_chunk=50, **options)
    for i, got in enumerate(run_together(shared, requests, aborted)):
        want = answer(lone, requests[i])
        if i == aborted:
            assert got.finish == CANCELLED
            want.tokens, want.scores = (
                want.tokens[: len(got.tokens)],
                want.scores[: len(got.scores)],
            )
        assert got.tokens == want.tokens
        assert score_gap(got, want) <= BOUND
    assert shared.pages.free == shared.settings.pages


@pytest.mark.parametrize("options", [{}, MTP], ids=["plain", "mtp"])
def test_a_seed_gives_its_tokens_in_any_company(artifact, options):
    """N-65: the same request in eight lanes at once, and alone; other seeds give others."""
    request = Request(random_prompt(20, seed=9), 24, Sampling(temperature=1.5, top_k=50, seed=77))
    engine = make_engine(artifact("dense"), lanes=8, **options)
    numbers = [engine.add(request) for _ in range(7)]
    other = engine.add(replace(request, sampling=replace(request.sampling, seed=78)))
    answers = run_all(engine)
    lone = answer(make_engine(artifact("dense"), **options), request)
    assert all(answers[number].tokens == lone.tokens for number in numbers)
    assert answers[other].tokens != lone.tokens
