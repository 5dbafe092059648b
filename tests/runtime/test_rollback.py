"""Reading a round late, and taking tokens back (specs/engine.md EN-1 to EN-7)."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
import torch

from builders.engines import Answer, answer, collect, make_engine, random_prompt, run_all
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.request import STOP, Request, Sampling
from ninfer_runtime.errors import RequestError

MTP = {"speculator": "mtp", "draft_tokens": 3}
SPECULATION = pytest.mark.parametrize("spec", [{}, MTP], ids=["plain", "mtp"])
AHEAD = pytest.mark.parametrize("look_ahead", [False, True])
PROMPT = random_prompt(9, seed=7)
COUNT = 24


def step_until(engine: Engine, number: int, tokens: int) -> list[int]:
    """Step until a request has emitted `tokens` or more; return them."""
    got = Answer()
    while len(got.tokens) < tokens:
        collect({number: got}, (s for s in engine.step() if s.number == number))
    return got.tokens


def go_on(engine: Engine, number: int) -> list[int]:
    return run_all(engine)[number].tokens


@SPECULATION
def test_reading_a_round_late_changes_no_answer(artifact, spec):
    """EN-1, EN-2: lanes join, one is cancelled, stop ids and limits end the others."""

    def run(look_ahead: bool) -> list[Answer]:
        engine = make_engine(artifact("dense"), lanes=2, look_ahead=look_ahead, **spec)
        answers: dict[int, Answer] = {}
        numbers = [engine.add(Request(random_prompt(5 + n, seed=n), 6 + 5 * n)) for n in range(4)]
        numbers.append(engine.add(Request(PROMPT, COUNT, stops=(want[5],))))
        while engine.busy:
            collect(answers, engine.step())
            if len(answers.get(numbers[1], Answer()).tokens) >= 4:
                engine.cancel(numbers[1])
        assert len(engine._free_lanes) == 2
        return [answers[number] for number in numbers if number != numbers[1]]

    want = answer(make_engine(artifact("dense")), Request(PROMPT, COUNT)).tokens
    late, soon = run(True), run(False)
    assert [a.tokens for a in late] == [a.tokens for a in soon]
    assert [a.finish for a in late] == [a.finish for a in soon]
    assert late[-1].finish == STOP and late[-1].tokens == want[: want.index(want[5]) + 1]


@SPECULATION
@AHEAD
@pytest.mark.parametrize("dropped", range(5))
def test_tokens_taken_back_come_again(artifact, spec, look_ahead, dropped):
    """EN-4: any number of tokens of the newest step, while the next round is under way."""
    engine = make_engine(artifact("dense"), look_ahead=look_ahead, **spec)
    want = answer(engine, Request(PROMPT, COUNT)).tokens
    number = engine.add(Request(PROMPT, COUNT))
    for tokens in (1, 6, 12):
        got = step_until(engine, number, 1 + tokens - len(engine._sequences[number].emitted))
        sequence = engine._sequences[number]
        keep = max(sequence.reach, len(sequence.emitted) - dropped)
        assert got and sequence.emitted == want[: len(sequence.emitted)]
        engine.rewind(number, keep)
        assert sequence.emitted == want[:keep]
    assert want[:keep] + go_on(engine, number) == want


@SPECULATION
@AHEAD
def test_state_taken_back_is_the_state_that_never_went_on(artifact, spec, look_ahead):
    """EN-4: bit for bit, seen through the log probabilities of what comes next."""
    request = Request(PROMPT, COUNT, logprobs=4)
    engine, other = (make_engine(artifact("dense"), look_ahead=look_ahead, **spec) for _ in "ab")
    scores = []
    for one, wrong in ((engine, True), (other, False)):
        number = one.add(request)
        step_until(one, number, 6)
        keep = one._sequences[number].reach + 1
        one.rewind(number, keep)
        if wrong:
            # Two rounds of another continuation, and back.
            one.table.tokens[0, 0] = 3
            one.step()
            one._landings = deque()
            one._sequences[number].reach = keep
            one.rewind(number, keep)
        scores.append(run_all(one)[number].scores)
    assert scores[0] == scores[1] and scores[0]


@AHEAD
def test_random_numbers_and_penalties_go_back_too(artifact, look_ahead):
    """EN-4: the counter of the generator is the position; the history counts kept tokens."""
    sampling = Sampling(temperature=1.5, seed=5, presence=1.0, frequency=0.7, repetition=1.3)
    request = Request(PROMPT, COUNT, sampling)
    engine = make_engine(artifact("dense"), look_ahead=look_ahead)
    want = answer(engine, request).tokens
    number = engine.add(request)
    step_until(engine, number, 8)
    keep = engine._sequences[number].reach
    engine.rewind(number, keep)
    counted = torch.bincount(torch.tensor(want[:keep]), minlength=engine.table.history.shape[1])
    assert torch.equal(engine.table.history[0], counted.int())
    assert want[:keep] + go_on(engine, number) == want


@SPECULATION
@AHEAD
def test_a_stop_found_late_ends_the_request_there(artifact, spec, look_ahead):
    """EN-5: nothing more is heard of it, its lane and pages serve the next request alone."""
    engine = make_engine(artifact("dense"), lanes=2, look_ahead=look_ahead, **spec)
    alone = [answer(engine, Request(random_prompt(11, seed=n), COUNT)).tokens for n in (1, 2)]
    pages = engine.pages.free
    stopped, other = (engine.add(Request(random_prompt(11, seed=n), COUNT)) for n in (0, 1))
    answers: dict[int, Answer] = {}
    while len(answers.get(stopped, Answer()).tokens) < 7:
        collect(answers, engine.step())
    keep = len(answers[stopped].tokens)
    end = engine.truncate(stopped, keep)
    assert end is not None and (end.tokens, end.finish) == ((), STOP)
    assert engine.truncate(stopped, keep) is None
    heir = engine.add(Request(random_prompt(11, seed=2), COUNT))
    collect(answers, (step for _ in iter(lambda: engine.busy, False) for step in engine.step()))
    assert len(answers[stopped].tokens) == keep
    assert [answers[other].tokens, answers[heir].tokens] == alone
    assert engine.pages.free == pages


@AHEAD
def test_only_tokens_of_the_newest_step_can_be_taken_back(artifact, look_ahead):
    """EN-4."""
    engine = make_engine(artifact("dense"), look_ahead=look_ahead)
    number = engine.add(Request(PROMPT, COUNT))
    step_until(engine, number, 5)
    for keep in (3, 6):
        with pytest.raises(RequestError, match=r"newest step.*want 4 to 5"):
            engine.rewind(number, keep)
    engine.rewind(number, 4)
    with pytest.raises(RequestError, match="want 4 to 4"):
        engine.rewind(number, 3)
    engine.cancel(number)
    with pytest.raises(RequestError, match="over"):
        engine.rewind(number, 4)


def words(allowed: set[int], vocabulary: int = 320) -> torch.Tensor:
    bits = [0] * -(-vocabulary // 32)
    for token in allowed:
        bits[token // 32] |= 1 << token % 32
    return torch.tensor(bits, dtype=torch.int64).to(torch.int32)


@SPECULATION
def test_a_mask_sees_every_token_before_the_next_one(artifact, spec):
    """EN-3: whatever shares the batch, whether rounds are read late or not."""
    seen: list[tuple[int, ...]] = []
    engine = make_engine(artifact("dense"), lanes=2, look_ahead=True, **spec)
    vocabulary = engine.geometry.text.vocab_size
    free = Request(random_prompt(6, seed=3), 40)
    want = answer(engine, free).tokens

    def alternate(emitted: tuple[int, ...]) -> torch.Tensor:
        seen.append(emitted)
        odd = len(emitted) % 2
        return words({t for t in range(vocabulary) if t % 2 == odd}, vocabulary)

    other = engine.add(free)
    step_until(engine, other, 5)
    number = engine.add(Request(PROMPT, 10, mask=alternate))
    answers: dict[int, Answer] = {other: Answer(tokens=want[:0]), number: Answer()}
    while engine.busy:
        collect(answers, engine.step())
    got = answers[number].tokens
    assert [token % 2 for token in got] == [0, 1] * 5
    assert seen == [tuple(got[:count]) for count in range(10)]
    rest = answers[other].tokens
    assert rest == want[len(want) - len(rest) :]


def test_a_mask_without_tokens_ends_its_request(artifact):
    """EN-3."""
    engine = make_engine(artifact("dense"))
    vocabulary = engine.geometry.text.vocab_size

    def mask(emitted: tuple[int, ...]) -> torch.Tensor:
        return words(set(range(4)) if len(emitted) < 2 else set(), vocabulary)

    got = answer(engine, Request(PROMPT, 10, mask=mask))
    assert (got.finish, got.error, len(got.tokens)) == ("error", "the mask allows no token", 2)


def poison(engine: Engine, lane: int, layer: int) -> None:
    """Make what a layer remembers of a lane NaN."""
    kinds = engine.geometry.text.layer_types
    index = kinds[:layer].count(kinds[layer])
    if kinds[layer] == "full_attention":
        page = int(engine.table.pages[lane, 0])
        engine.state.decoder.kv[index].values[page, 0, 1] = float("nan")
    else:
        engine.state.decoder.recurrent.layers[index].state[lane, 0, 3, 4] = float("nan")


@SPECULATION
@AHEAD
@pytest.mark.parametrize("kind", ["linear_attention", "full_attention"])
def test_poisoned_numbers_end_one_request_and_name_the_layer(artifact, spec, look_ahead, kind):
    """EN-6: the other lane goes on; the next owner of lane and pages never sees them."""
    engine = make_engine(artifact("dense"), lanes=2, look_ahead=look_ahead, **spec)
    kinds = engine.geometry.text.layer_types
    layer = max(index for index, one in enumerate(kinds) if one == kind)
    requests = [Request(random_prompt(11, seed=n), COUNT, logprobs=3) for n in range(3)]
    alone = [answer(engine, request) for request in requests]
    numbers = [engine.add(request) for request in requests[:2]]
    answers: dict[int, Answer] = {}
    while len(answers.get(numbers[0], Answer()).tokens) < 5:
        collect(answers, engine.step())
    poison(engine, engine._sequences[numbers[0]].lane, layer)
    while numbers[0] in engine._sequences:
        collect(answers, engine.step())
    broken = answers[numbers[0]]
    assert broken.finish == "error" and f"layer {layer} ({kind})" in str(broken.error)
    assert broken.tokens == alone[0].tokens[: len(broken.tokens)]
    heir = engine.add(requests[2])
    while engine.busy:
        collect(answers, engine.step())
    assert answers[numbers[1]].tokens == alone[1].tokens
    assert answers[heir].tokens == alone[2].tokens


@pytest.mark.parametrize("kind", ["fp32", "bf16", "fp8", "int8"])
def test_rows_that_a_sequence_did_not_write_are_never_read(artifact, kind):
    """EN-6: pages full of NaN serve a new request as empty ones do."""
    engine = make_engine(artifact("dense"), kv_kind=kind, **MTP)
    want = answer(engine, Request(PROMPT, COUNT)).tokens
    assert engine.state.mtp is not None
    for cache in (*engine.state.decoder.kv, engine.state.mtp):
        for plane in (cache.keys, cache.values, cache.key_scales, cache.value_scales):
            if plane is not None:
                plane.fill_(float("nan") if plane.is_floating_point() else 0x7F)
    assert answer(engine, Request(PROMPT, COUNT)).tokens == want


def test_an_embedding_that_is_not_finite_is_named(artifact):
    """EN-6: seen at the first column of the round."""
    engine = make_engine(artifact("dense"))
    embedding = engine.model.text.embedding
    engine.model = replace(engine.model)
    before = embedding.planes["values"][7].clone()
    embedding.planes["values"][7] = float("nan")
    got = answer(engine, Request((1, 2, 7), 4))
    embedding.planes["values"][7] = before
    assert got.finish == "error" and "the embedding" in str(got.error)
