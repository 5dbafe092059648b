"""Masks that come and go, and requests that end only when they are let go (EN-30, EN-31)."""

from __future__ import annotations

import pytest
import torch

from builders.engines import Answer, answer, collect, make_engine, random_prompt, run_all
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.request import LENGTH, STOP, Request, Sampling
from ninfer_runtime.errors import RequestError

MTP = {"speculator": "mtp", "draft_tokens": 3}
SPECULATION = pytest.mark.parametrize("spec", [{}, MTP], ids=["plain", "mtp"])
AHEAD = pytest.mark.parametrize("look_ahead", [False, True])
PROMPT = random_prompt(9, seed=7)
COUNT = 24


def only(token: int, vocabulary: int) -> torch.Tensor:
    words = torch.zeros(-(-vocabulary // 32), dtype=torch.int64)
    words[token // 32] = 1 << token % 32
    return words.to(torch.int32)


def step_until(engine: Engine, number: int, tokens: int) -> Answer:
    got = Answer()
    while len(got.tokens) < tokens:
        collect({number: got}, (s for s in engine.step() if s.number == number))
    return got


def forced(engine: Engine, tokens: list[int], begin: int):
    vocabulary = engine.geometry.text.vocab_size
    return lambda emitted: only(tokens[len(emitted) - begin], vocabulary)


@SPECULATION
@AHEAD
def test_a_mask_comes_and_goes_at_the_very_token(artifact, spec, look_ahead):
    """EN-30: the tokens in between are forced, what follows is what follows these tokens."""
    engine = make_engine(artifact("dense"), lanes=2, look_ahead=look_ahead, **spec)
    wanted = [5, 250, 17]
    alone = answer(engine, Request(random_prompt(11, seed=3), 40)).tokens
    free = answer(engine, Request(PROMPT, COUNT)).tokens
    other = engine.add(Request(random_prompt(11, seed=3), 40))
    answers: dict[int, Answer] = {other: Answer()}
    number = engine.add(Request(PROMPT, COUNT))
    tokens: list[int] = []
    while len(tokens) < 6:
        steps = engine.step()
        collect(answers, (s for s in steps if s.number == other))
        tokens += [token for s in steps if s.number == number for token in s.tokens]
    engine.rewind(number, keep := len(tokens) - 1)
    engine.constrain(number, forced(engine, wanted, keep))
    tokens = tokens[:keep]
    while len(tokens) < keep + len(wanted):
        steps = engine.step()
        assert len({s.number for s in steps}) == len(steps)
        collect(answers, (s for s in steps if s.number == other))
        tokens += [token for s in steps if s.number == number for token in s.tokens]
    assert tokens == free[:keep] + wanted
    assert engine.table.widths.tolist()[1] == 1
    engine.constrain(number, None)
    assert engine.table.widths.tolist()[1] == engine.settings.width, "it does not draft again"
    rest: dict[int, Answer] = {}
    while engine.busy:
        steps = engine.step()
        collect(answers, (s for s in steps if s.number == other))
        collect(rest, (s for s in steps if s.number == number))
    assert answers[other].tokens == alone
    prefix = (*PROMPT, *tokens)
    assert rest[number].tokens == answer(engine, Request(prefix, COUNT - len(tokens))).tokens


@AHEAD
def test_a_mask_that_is_gone_binds_nobody(artifact, look_ahead):
    """EN-30: another lane still has one, so the round applies all masks."""
    engine = make_engine(artifact("dense"), lanes=2, look_ahead=look_ahead)
    vocabulary = engine.geometry.text.vocab_size
    masked = engine.add(Request(PROMPT, 30, mask=lambda emitted: only(3, vocabulary)))
    number = engine.add(Request(PROMPT, COUNT, mask=lambda emitted: only(4, vocabulary)))
    head = step_until(engine, number, 2).tokens
    engine.constrain(number, None)
    rest = run_all(engine)
    assert set(rest[masked].tokens) == {3} and head == [4, 4]
    alone = answer(engine, Request((*PROMPT, 4, 4), COUNT - 2))
    assert rest[number].tokens == alone.tokens


@SPECULATION
@AHEAD
def test_a_held_request_goes_on_from_before_its_end(artifact, spec, look_ahead):
    """EN-31: by a stop id in the middle of what was accepted, and by its limit."""
    engine = make_engine(artifact("dense"), look_ahead=look_ahead, **spec)
    want = answer(engine, Request(PROMPT, COUNT)).tokens
    stop = want[9]
    end = want.index(stop) + 1
    for request, length, finish in (
        (Request(PROMPT, COUNT, stops=(stop,), held=True), end, STOP),
        (Request(PROMPT, 10, held=True), 10, LENGTH),
    ):
        number = engine.add(request)
        got = step_until(engine, number, length)
        assert (got.tokens, got.finish) == (want[:length], finish)
        assert engine.busy and engine.find(number) is not None
        reach = engine._sequences[number].reach
        engine.rewind(number, reach)
        again = step_until(engine, number, length - reach)
        assert (again.tokens, again.finish) == (want[reach:length], finish)
        assert engine.truncate(number, length) is not None
        assert not engine.busy and len(engine._free_lanes) == 1
        assert engine.pages.free == engine.settings.pages


def test_an_error_lets_a_held_request_go(artifact):
    """EN-31: there is nothing to go on from."""
    engine = make_engine(artifact("dense"))
    words = -(-engine.geometry.text.vocab_size // 32)
    request = Request(
        PROMPT, 5, mask=lambda emitted: torch.zeros(words, dtype=torch.int32), held=True
    )
    got = answer(engine, request)
    assert got.finish == "error" and not engine.busy and len(engine._free_lanes) == 1


def test_only_running_requests_can_be_constrained(artifact):
    """EN-30."""
    engine = make_engine(artifact("dense"))
    number = engine.add(Request(PROMPT, 5, Sampling()))
    with pytest.raises(RequestError, match="running"):
        engine.constrain(number, None)
    run_all(engine)
    with pytest.raises(RequestError, match="running"):
        engine.constrain(number, None)
