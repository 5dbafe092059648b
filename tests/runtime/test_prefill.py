"""A prompt's chunks leave what one pass over the whole prompt leaves."""

from __future__ import annotations

import pytest

from builders.engines import (
    answer,
    make_engine,
    prompt_logits,
    random_prompt,
    score_gap,
)
from builders.tiny_models import relative_error
from ninfer_runtime.engine.request import Request

BOUND = 1e-5  # N-63
CHUNKS = (1, 64, 127, 1024)
LENGTH = 150


@pytest.mark.parametrize("name", ["dense", "moe"])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_any_chunk_size_gives_the_logits_of_one_pass(artifact, name, chunk):
    """N-63"""
    engine, ids = make_engine(artifact(name)), random_prompt(LENGTH, seed=4)
    whole = prompt_logits(engine, ids)
    assert relative_error(prompt_logits(engine, ids, chunk), whole) <= BOUND


@pytest.mark.parametrize("spec", [{}, {"speculator": "mtp", "draft_tokens": 2}])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_any_chunk_size_gives_the_same_continuation(artifact, chunk, spec):
    """N-63"""
    request = Request(random_prompt(LENGTH, seed=4), 24, logprobs=8)
    want = answer(make_engine(artifact("dense")), request)
    got = answer(make_engine(artifact("dense"), prefill_chunk=chunk, **spec), request)
    assert got.tokens == want.tokens
    assert score_gap(got, want) <= BOUND


@pytest.mark.parametrize("name", ["dense", "moe"])
def test_decoding_equals_a_forward_pass_over_everything(artifact, name):
    """N-63"""
    prompt = random_prompt(30, seed=5)
    engine = make_engine(artifact(name))
    got = answer(engine, Request(prompt, 100, logprobs=5))
    rows = prompt_logits(engine, (*prompt, *got.tokens))[len(prompt) - 1 : -1].log_softmax(-1)
    assert rows.argmax(1).tolist() == got.tokens
    scale = rows.abs().max()
    for row, token, score in zip(rows, got.tokens, got.scores, strict=True):
        assert abs(row[token] - score.logprob) <= BOUND * scale
        values, ids = row.topk(5)
        assert [id for id, _ in score.top] == ids.tolist()
        for value, (_, logprob) in zip(values, score.top, strict=True):
            assert abs(value - logprob) <= BOUND * scale


def test_a_prompt_of_one_token_needs_no_prefill(artifact):
    engine = make_engine(artifact("dense"))
    got = answer(engine, Request((7,), 8))
    assert got.tokens[0] == int(prompt_logits(engine, (7,)).argmax())
    assert len(got.tokens) == 8
