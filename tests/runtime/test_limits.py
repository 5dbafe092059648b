"""Requests that cannot run are refused, those that cannot run yet wait."""

from __future__ import annotations

import pytest

from builders.engines import Answer, answer, collect, make_engine, random_prompt, run_all
from ninfer_runtime.engine.request import CANCELLED, LENGTH, Request, Sampling
from ninfer_runtime.errors import RequestError

PROMPT = random_prompt(20, seed=51)
REFUSED = {
    "empty": (Request((), 4), "empty"),
    "longer than the context": (Request(random_prompt(256), 4), "longer than the context"),
    "unknown id": (Request((5, 320), 4), "unknown token id"),
    "negative id": (Request((-1, 5), 4), "unknown token id"),
    "unknown stop": (Request(PROMPT, 4, stops=(320,)), "unknown token id"),
    "unknown bias": (Request(PROMPT, 4, Sampling(bias={320: 1.0})), "unknown token id"),
    "nothing asked for": (Request(PROMPT, 0), "no tokens"),
    "stops": (Request(PROMPT, 4, stops=tuple(range(17))), "too many stop ids"),
    "log probabilities": (Request(PROMPT, 4, logprobs=65), "log probabilities"),
    "negative log probabilities": (Request(PROMPT, 4, logprobs=-1), "log probabilities"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_never_run_is_refused_by_name(artifact, name):
    request, message = REFUSED[name]
    engine = make_engine(artifact("dense"))
    with pytest.raises(RequestError, match=message):
        engine.add(request)
    assert not engine.busy
    assert len(answer(engine, Request(PROMPT, 4)).tokens) == 4


@pytest.mark.parametrize("options", [{}, {"speculator": "mtp", "draft_tokens": 7}])
def test_an_answer_ends_where_the_context_ends(artifact, options):
    prompt = random_prompt(250, seed=52)
    engine = make_engine(artifact("dense"), **options)
    got = answer(engine, Request(prompt, 100))
    assert (len(got.tokens), got.finish) == (6, LENGTH)
    want = answer(make_engine(artifact("dense"), max_context=512), Request(prompt, 6))
    assert got.tokens == want.tokens
    assert len(answer(engine, Request(random_prompt(255), 9)).tokens) == 1


def test_requests_wait_for_pages_in_their_order(artifact):
    """Two lanes, pages for one long request: the second starts when the first is over."""
    engine = make_engine(artifact("dense"), lanes=2, kv_capacity=256)
    requests = [Request(random_prompt(100 + i, seed=i), 30) for i in range(3)]
    numbers = [engine.add(request) for request in requests]
    order: list[int] = []
    answers: dict[int, Answer] = {}
    while engine.busy:
        steps = engine.step()
        collect(answers, steps)
        order += [step.number for step in steps if step.finish]
    assert order == numbers
    for number, request in zip(numbers, requests, strict=True):
        assert answers[number].tokens == answer(engine, request).tokens
    assert engine.pages.free == 4


def test_requests_wait_for_lanes(artifact):
    engine = make_engine(artifact("dense"), lanes=2)
    numbers = [engine.add(Request(random_prompt(10 + i, seed=i), 5 + i)) for i in range(6)]
    answers = run_all(engine)
    assert [len(answers[number].tokens) for number in numbers] == [5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("steps", [0, 1, 4], ids=["waiting", "prefill", "running"])
def test_a_cancelled_request_frees_its_place(artifact, steps):
    engine = make_engine(artifact("dense"), prefill_chunk=40)
    number = engine.add(Request(random_prompt(100), 50))
    for _ in range(steps):
        engine.step()
    step = engine.cancel(number)
    assert step is not None and step.finish == CANCELLED
    assert engine.cancel(number) is None
    assert not engine.busy and engine.pages.free == 4
    want = answer(make_engine(artifact("dense")), Request(PROMPT, 12))
    assert answer(engine, Request(PROMPT, 12)).tokens == want.tokens
