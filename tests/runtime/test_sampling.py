"""What a request asks of sampling has its effect on the tokens, drafts or not."""

from __future__ import annotations

import pytest

from builders.engines import GREEDY, answer, make_engine, prompt_logits, random_prompt
from ninfer_runtime.engine.request import LENGTH, STOP, Request, Sampling

OPTIONS = [{}, {"speculator": "mtp", "draft_tokens": 3}]
NAMES = ["plain", "mtp"]
PROMPT = random_prompt(25, seed=41)
# Ten tokens are left, so that they come again and again.
FEW = {token: -float("inf") for token in range(10, 320)}
with_and_without_drafts = pytest.mark.parametrize("options", OPTIONS, ids=NAMES)


def run(artifact, options, sampling=GREEDY, count=24, **wanted):
    request = Request(PROMPT, count, sampling, **wanted)
    return answer(make_engine(artifact("dense"), **options), request)


def rows_before(artifact, tokens):
    """Return the logits [n, V] that each of the tokens was chosen from, by one forward pass."""
    engine = make_engine(artifact("dense"))
    return prompt_logits(engine, (*PROMPT, *tokens))[len(PROMPT) - 1 : -1]


@with_and_without_drafts
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(repetition=1.5, bias=FEW),
        Sampling(presence=4.0, bias=FEW),
        Sampling(frequency=0.5, bias=FEW),
        Sampling(repetition=1.2, presence=1.0, frequency=0.5, bias=FEW | {3: 5.0, 9: -4.0}),
    ],
    ids=["repetition", "presence", "frequency", "all"],
)
def test_penalties_and_bias_follow_their_formulas(artifact, options, sampling):
    """SA-1 to SA-3: at every step, from the tokens that came before."""
    got = run(artifact, options, sampling).tokens
    assert got != run(artifact, options, Sampling(bias=FEW)).tokens
    for step, row in enumerate(rows_before(artifact, got)):
        generated = got[:step]
        for token in {*PROMPT, *generated}:
            value = row[token]
            row[token] = value / sampling.repetition if value > 0 else value * sampling.repetition
        for token in set(generated):
            row[token] -= sampling.frequency * generated.count(token) + sampling.presence
        for token, value in sampling.bias.items():
            row[token] += value
        assert int(row.argmax()) == got[step]


@with_and_without_drafts
def test_a_large_bias_forces_and_a_small_one_forbids(artifact, options):
    """SA-3"""
    assert run(artifact, options, Sampling(bias={17: 1e4})).tokens == [17] * 24
    free = run(artifact, options).tokens
    banned = dict.fromkeys(free, -float("inf"))
    assert not set(run(artifact, options, Sampling(bias=banned)).tokens) & set(free)


@with_and_without_drafts
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=5.0, top_k=1, seed=3),
        Sampling(temperature=5.0, top_p=1e-6, seed=3),
        Sampling(temperature=5.0, min_p=1.0, seed=3),
        Sampling(temperature=1e-4, seed=3),
    ],
    ids=["top-k 1", "top-p 0", "min-p 1", "cold"],
)
def test_a_filter_that_leaves_one_token_is_greedy(artifact, options, sampling):
    """SA-6"""
    assert run(artifact, options, sampling).tokens == run(artifact, options).tokens


@with_and_without_drafts
@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_filters_keep_what_they_say(artifact, options, seed):
    """SA-6: every drawn token is among those that top-k, top-p and min-p leave."""
    for sampling in (
        Sampling(temperature=6.0, top_k=5, seed=seed),
        Sampling(temperature=6.0, top_p=0.5, seed=seed),
        Sampling(temperature=6.0, min_p=0.4, seed=seed),
    ):
        got = run(artifact, options, sampling, 40).tokens
        greedy = 0
        for row, token in zip(rows_before(artifact, got), got, strict=True):
            chances = (row.double() / sampling.temperature).softmax(-1)
            above = chances > chances[token] + 1e-6
            assert sampling.top_k == 0 or above.sum() < sampling.top_k
            assert sampling.top_p == 1 or chances[above].sum() < sampling.top_p
            assert chances[token] >= sampling.min_p * chances.max() - 1e-6
            greedy += int(not above.any())
        assert greedy < 40, "nothing but the likeliest token was drawn"


@with_and_without_drafts
def test_an_answer_ends_with_the_first_stop_id(artifact, options):
    free = run(artifact, options, count=40).tokens
    stops = (free[12], free[20])
    end = min(free.index(stop) for stop in stops) + 1
    got = run(artifact, options, count=40, stops=stops)
    assert (got.tokens, got.finish) == (free[:end], STOP)
    # A stop id in the prompt ends nothing.
    unused = next(id for id in PROMPT if id not in free)
    assert run(artifact, options, count=40, stops=(unused,)).tokens == free


@with_and_without_drafts
@pytest.mark.parametrize("count", [1, 2, 3, 17])
def test_an_answer_has_the_tokens_asked_for(artifact, options, count):
    got = run(artifact, options, count=count)
    assert (len(got.tokens), got.finish) == (count, LENGTH)
    assert got.tokens == run(artifact, options).tokens[:count]


@with_and_without_drafts
def test_log_probabilities_are_those_before_temperature(artifact, options):
    """SA-10"""
    sampling = Sampling(temperature=3.0, top_k=30, seed=6)
    got = run(artifact, options, sampling, logprobs=3)
    rows = rows_before(artifact, got.tokens).log_softmax(-1)
    assert len(got.scores) == len(got.tokens)
    for row, token, score in zip(rows, got.tokens, got.scores, strict=True):
        assert score.logprob == pytest.approx(float(row[token]), abs=1e-4)
        assert [id for id, _ in score.top] == row.topk(3).indices.tolist()
        assert [value for _, value in score.top] == pytest.approx(
            row.topk(3).values.tolist(), abs=1e-4
        )


def test_scores_come_only_when_asked_for(artifact):
    assert run(artifact, {}).scores == []
    assert all(score.top == () for score in run(artifact, {}, logprobs=0).scores)
    assert len(run(artifact, {}, count=3, logprobs=64).scores[0].top) == 64
