"""A saved sequence goes on, as often as wanted, as if it had never stopped."""

from __future__ import annotations

import pytest
import torch

from builders.engines import Answer, answer, collect, make_engine, random_prompt, run_all, score_gap
from ninfer_formats.errors import NinferError
from ninfer_runtime.engine.request import Request, Sampling

MTP = {"speculator": "mtp", "draft_tokens": 3}
DRAWN = Sampling(
    temperature=0.8, top_k=20, top_p=0.95, repetition=1.2, presence=0.3, frequency=0.2, seed=7,
    bias={5: 1.5},
)  # fmt: skip
OPTIONS = [({}, Sampling()), (MTP, Sampling()), (MTP, DRAWN)]
NAMES = ["plain", "mtp", "mtp drawn"]


def start(engine, request, tokens):
    """Run until at least `tokens` tokens are there; return the number and the answers."""
    number, answers = engine.add(request), {}
    while number not in answers or len(answers[number].tokens) < tokens:
        collect(answers, engine.step())
    return number, answers


@pytest.mark.parametrize(("options", "sampling"), OPTIONS, ids=NAMES)
@pytest.mark.parametrize("name", ["dense", "moe"])
def test_restored_sequence_continues_bit_exactly(artifact, name, options, sampling):
    """N-66: tokens, log probabilities and the recurrent state."""
    engine = make_engine(artifact(name), kv_capacity=256, **options)
    request = Request(random_prompt(100, seed=11), 60, sampling, logprobs=4)
    number, answers = start(engine, request, 20)
    saved = engine.snapshot(number)
    before = len(answers[number].tokens)
    while engine.busy:
        collect(answers, engine.step())
    state = [plane.clone() for plane in engine.state.decoder.recurrent.planes]
    want = answers[number]

    engine.table.tokens.fill_(3)  # whatever the lane held since
    restored = engine.restore(saved)
    got = run_all(engine)[restored]
    assert got.tokens == want.tokens[before:]
    assert got.scores == want.scores[before:]
    assert got.finish == want.finish
    for mine, theirs in zip(engine.state.decoder.recurrent.planes, state, strict=True):
        assert torch.equal(mine, theirs)


def test_state_is_bit_equal_in_the_middle_too(artifact):
    """N-66: after the same further rounds every plane of the lane is what it was."""
    engine = make_engine(artifact("dense"), **MTP)
    number, answers = start(engine, Request(random_prompt(70, seed=12), 60), 10)
    saved = engine.snapshot(number)

    def advance():
        for _ in range(5):
            collect(answers, engine.step())
        planes = (*engine.state.decoder.recurrent.planes, *engine.table.planes)
        return [plane.clone() for plane in planes]

    want = advance()
    engine.cancel(number)
    engine.restore(saved)
    assert all(map(torch.equal, advance(), want))


@pytest.mark.parametrize(("options", "sampling"), OPTIONS, ids=NAMES)
def test_snapshot_moves_to_another_lane_while_the_original_goes_on(artifact, options, sampling):
    """N-66: shared pages stay what they are, the last one is a copy; three copies run at once."""
    request = Request(random_prompt(90, seed=13), 80, sampling, logprobs=4)
    lone = answer(make_engine(artifact("dense"), **options), request)
    engine = make_engine(artifact("dense"), lanes=4, **options)
    number, answers = start(engine, request, 15)
    saved, before = engine.snapshot(number), len(answers[number].tokens)
    for _ in range(8):
        collect(answers, engine.step())
    numbers = [engine.restore(saved)]
    for _ in range(4):
        collect(answers, engine.step())
    numbers.append(engine.restore(saved))
    while engine.busy:
        collect(answers, engine.step())
    assert answers[number].tokens == lone.tokens
    rest = Answer(scores=lone.scores[before:])
    for restored in numbers:
        assert answers[restored].tokens == lone.tokens[before:]
        assert score_gap(answers[restored], rest) <= 1e-5


def test_snapshot_survives_its_original_and_frees_what_it_holds(artifact):
    engine = make_engine(artifact("dense"), lanes=2)
    free = engine.pages.free
    request = Request(random_prompt(130, seed=14), 40)
    number, answers = start(engine, request, 5)
    saved, before = engine.snapshot(number), len(answers[number].tokens)
    engine.cancel(number)
    assert engine.pages.free == free - 3  # two full pages and the copy of the third
    other = engine.add(Request(random_prompt(200, seed=15), 56))
    while engine.busy:  # writes every page that is free
        collect(answers, engine.step())
    assert len(answers[other].tokens) == 56
    restored = engine.restore(saved)
    got = run_all(engine)[restored]
    lone = answer(make_engine(artifact("dense")), request)
    assert got.tokens == lone.tokens[before:]
    engine.drop(saved)
    assert engine.pages.free == free


def test_nothing_written_to_the_last_page_later_reaches_a_snapshot(artifact):
    engine = make_engine(artifact("dense"), lanes=2)
    request = Request(random_prompt(40, seed=17), 30)
    number, answers = start(engine, request, 5)
    saved, before = engine.snapshot(number), len(answers[number].tokens)
    for cache in engine.state.caches:
        cache.keys[engine._sequences[number].pages] = float("nan")
    engine.cancel(number)
    restored = engine.restore(saved)
    lone = answer(make_engine(artifact("dense")), request)
    assert run_all(engine)[restored].tokens == lone.tokens[before:]


def test_snapshot_at_the_edge_of_a_page_copies_nothing(artifact):
    engine = make_engine(artifact("dense"))
    request = Request(random_prompt(60, seed=16), 40)
    number, _ = start(engine, request, 5)  # 59 + 5 tokens are committed
    free = engine.pages.free
    saved = engine.snapshot(number)
    assert saved.state.tokens == 64 and engine.pages.free == free
    engine.cancel(number)
    restored = engine.restore(saved)
    lone = answer(make_engine(artifact("dense")), request)
    assert run_all(engine)[restored].tokens == lone.tokens[5:]


def test_what_cannot_be_saved_or_restored_is_refused_and_changes_nothing(artifact):
    engine = make_engine(artifact("dense"), kv_capacity=256)
    with pytest.raises(NinferError, match="running"):
        engine.snapshot(0)
    number, _ = start(engine, Request(random_prompt(20), 236), 3)
    with pytest.raises(NinferError, match="pages"):
        engine.snapshot(number)  # every page is taken, the copy needs one
    engine.cancel(number)
    number, _ = start(engine, Request(random_prompt(20), 30), 3)
    saved = engine.snapshot(number)
    with pytest.raises(NinferError, match="lane"):
        engine.restore(saved)
    engine.cancel(number)
    assert engine.pages.free == 3
    request = Request(random_prompt(20), 5)
    want = answer(make_engine(artifact("dense")), request)
    assert answer(engine, request).tokens == want.tokens
