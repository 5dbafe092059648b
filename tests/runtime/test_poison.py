"""Numbers that are not finite end the request they belong to, and touch no other, then or later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders.engines import answer, collect, make_engine, random_prompt
from ninfer_runtime.engine.request import ERROR, LENGTH, Request, Sampling

NAN = float("nan")
OPTIONS = [{}, {"speculator": "mtp", "draft_tokens": 2}]
POISONED = 288
HEALTHY = [
    Request(tuple(id % POISONED for id in random_prompt(30 + i, seed=60 + i)), 24) for i in range(2)
]


def poison_keys(engine, sequence):
    engine.state.decoder.kv[0].keys[sequence.pages[0]] = NAN


def poison_values(engine, sequence):
    engine.state.decoder.kv[1].values[sequence.pages] = NAN


def poison_state(engine, sequence):
    engine.state.decoder.recurrent.layers[1].state[sequence.lane] = NAN


def poison_window(engine, sequence):
    engine.state.decoder.recurrent.layers[0].window[sequence.lane] = NAN


PLACES = [poison_keys, poison_values, poison_state, poison_window]


def run_beside(engine, lone, victim, poison=None):
    """Run the victim among healthy requests, then every healthy request again in whatever lanes
    and pages it left, each as in the engine `lone`; return the victim's answer."""
    numbers, answers = [engine.add(r) for r in (HEALTHY[0], victim, *HEALTHY[1:])], {}
    for _ in range(8):
        collect(answers, engine.step())
    if poison is not None:
        poison(engine, engine._sequences[numbers[1]])
    while engine.busy:
        collect(answers, engine.step())
    again = [engine.add(request) for request in HEALTHY * 2]
    while engine.busy:
        collect(answers, engine.step())
    want = [answer(lone, request).tokens for request in HEALTHY]
    assert [answers[n].tokens for n in (numbers[0], *numbers[2:])] == want
    assert [answers[n].tokens for n in again] == want * 2
    return answers[numbers[1]]


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "mtp"])
@pytest.mark.parametrize("poison", PLACES)
def test_poisoned_state_ends_its_own_request_only(artifact, poison, options):
    """N-68"""
    engine = make_engine(artifact("dense"), lanes=4, **options)
    lone = make_engine(artifact("dense"))
    got = run_beside(engine, lone, Request(random_prompt(40, seed=59), 30), poison)
    assert got.finish == ERROR and got.error and "not finite" in got.error
    assert 0 < len(got.tokens) < 30


@pytest.mark.parametrize("name", ["dense", "moe"])
def test_a_token_with_a_poisoned_embedding_ends_its_own_request_only(artifact, name):
    """N-68: from its prefill on."""
    engine = make_engine(artifact(name), lanes=4)
    values = engine.model.text.embedding.planes["values"].clone()
    values[POISONED] = NAN
    embedding = replace(engine.model.text.embedding, planes={"values": values})
    engine.model = replace(engine.model, text=replace(engine.model.text, embedding=embedding))
    engine._rounds._model = engine.model
    got = run_beside(engine, make_engine(artifact(name)), Request((3, POISONED, 4, 5), 30))
    assert got.finish == ERROR and got.tokens == []


def test_infinite_logits_are_an_error_and_minus_infinity_is_not(artifact):
    """N-68 and SA-11: one weight of one sign or the other makes the first logit of a token +inf."""
    firsts = []
    for sign in (1, -1):
        engine = make_engine(artifact("dense"))
        row = engine.model.text.head.planes["values"][7]
        row.zero_()[0] = sign * float("inf")
        got = answer(engine, Request((3, 4, 5), 1))
        firsts.append((got.finish, len(got.tokens)))
    assert sorted(firsts) == [(ERROR, 0), (LENGTH, 1)]
    down = Request((3, 4, 5), 6, Sampling(bias={7: -float("inf")}))
    assert len(answer(make_engine(artifact("dense")), down).tokens) == 6
