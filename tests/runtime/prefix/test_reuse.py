"""A prompt that goes on from a kept prefix gives what it would give alone."""

from __future__ import annotations

import pytest
import torch

from builders.engines import answer, collect, make_engine, random_prompt, run_all, score_gap
from builders.prefix_engines import ask, make_reusing, require_all_free, run_until
from ninfer_runtime.engine.request import Request, Sampling
from ninfer_runtime.prefix.reuse import ANSWER, NONE, PROMPT, SYSTEM

MTP = {"speculator": "mtp", "draft_tokens": 3}
DRAWN = Sampling(
    temperature=0.8, top_k=20, top_p=0.95, repetition=1.2, presence=0.3, frequency=0.2, seed=7,
    bias={5: 1.5},
)  # fmt: skip
OPTIONS = [({}, Sampling()), (MTP, Sampling()), (MTP, DRAWN)]
NAMES = ["plain", "mtp", "mtp drawn"]
EXACT, CODED = 1e-5, 2e-2


def check_equal(got, want, limit=EXACT):
    assert got.tokens == want.tokens
    assert got.finish == want.finish
    assert score_gap(got, want) <= limit


def chosen_gap(got, want):
    """Return the largest difference of the tokens' own log probabilities by the largest of all:
    of many answers, some have likely tokens that change places within the error."""
    largest = max(abs(value) for score in want.scores for _, value in score.top)
    pairs = zip(got.scores, want.scores, strict=True)
    return max(abs(mine.logprob - theirs.logprob) for mine, theirs in pairs) / largest


@pytest.mark.parametrize("kind", ["fp32", "bf16", "int8", "fp8"])
@pytest.mark.parametrize("options", [{}, MTP], ids=["plain", "mtp"])
def test_next_turn_goes_on_from_the_answer(artifact, kind, options):
    """PX-1, PX-5: state that ends inside a page, at its edge and one token behind it."""
    limit = EXACT if kind == "fp32" else CODED
    alone = make_engine(artifact("dense"), kv_kind=kind, **options)
    engine = make_reusing(artifact("dense"), kv_kind=kind, **options)
    for length in (110, 111, 112, 130):
        prompt = random_prompt(length, seed=length)
        first = Request(prompt, 18, logprobs=4, boundaries=(40, length - 5))
        turn, reuse = ask(engine, first)
        assert (reuse.kind, reuse.cached) == (NONE, 0)
        check_equal(turn, answer(alone, first), limit)
        longer = (*prompt, *turn.tokens, *random_prompt(30, seed=2))
        second = Request(longer, 30, logprobs=4)
        got, reuse = ask(engine, second)
        assert (reuse.kind, reuse.cached) == (ANSWER, length + 18 - 1)
        check_equal(got, answer(alone, second), limit)
    require_all_free(engine)


@pytest.mark.parametrize(("options", "sampling"), OPTIONS, ids=NAMES)
@pytest.mark.parametrize("name", ["dense", "moe"])
def test_drafts_and_penalties_are_those_of_a_request_alone(artifact, name, options, sampling):
    """PX-5: rounds too, so the MTP head's cache is what it would be. The penalty history is that
    of the request, not of the prefix."""
    alone = make_engine(artifact(name), **options)
    engine = make_reusing(artifact(name), **options)
    prompt = random_prompt(100, seed=3)
    turn, _ = ask(engine, Request(prompt, 20, sampling, boundaries=(64, 95)))
    for tail, kind in (((), ANSWER), ((7,), ANSWER)):
        request = Request((*prompt, *turn.tokens, *tail), 40, sampling, logprobs=4)
        got, reuse = ask(engine, request)
        assert reuse.kind == kind
        want = answer(alone, request)
        check_equal(got, want)
        assert got.rounds == want.rounds


@pytest.mark.parametrize("options", [{}, MTP], ids=["plain", "mtp"])
def test_lanes_share_one_snapshot_at_the_same_time(artifact, options):
    """PX-5, PX-9: three behind one system prompt, two of them with one first turn."""
    system = random_prompt(129, seed=4)
    tails = [random_prompt(20, seed=5), random_prompt(20, seed=5), random_prompt(33, seed=6)]
    requests = [Request((*system, *t), 40, logprobs=4, boundaries=(129, 140)) for t in tails]
    alone = make_engine(artifact("dense"), **options)
    want = [answer(alone, request) for request in requests]
    engine = make_reusing(artifact("dense"), lanes=3, **options)
    numbers = [engine.add(request) for request in requests]
    sequences = [engine.find(number) for number in numbers]
    answers = run_all(engine)
    for number, expected in zip(numbers, want, strict=True):
        check_equal(answers[number], expected)
    # Each was admitted when the one before had left its snapshots.
    assert [(s.reuse.kind, s.reuse.cached) for s in sequences] == [
        (NONE, 0), (PROMPT, 139), (SYSTEM, 128),
    ]  # fmt: skip
    require_all_free(engine)


def test_at_least_one_token_is_computed(artifact):
    """PX-3: the same prompt again, and one that ends inside an earlier one."""
    engine = make_reusing(artifact("dense"))
    prompt = random_prompt(90, seed=8)
    turn, _ = ask(engine, Request(prompt, 10, boundaries=(90,)))
    again, reuse = ask(engine, Request(prompt, 10))
    assert reuse.cached == 89 and again.tokens == turn.tokens
    single = Request((prompt[0],), 5)
    got, reuse = ask(engine, single)
    assert reuse.cached == 0
    assert got.tokens == answer(make_engine(artifact("dense")), single).tokens


@pytest.mark.parametrize("look_ahead", [False, True])
@pytest.mark.parametrize("options", [{}, MTP], ids=["plain", "mtp"])
def test_case_58_cut_answers_leave_exactly_their_tokens(artifact, options, look_ahead):
    """PX-4: a round under way and tokens behind the stop are in no snapshot."""
    alone = make_engine(artifact("dense"), **options)
    options = {**options, "look_ahead": look_ahead}
    prompt = random_prompt(70, seed=9)
    want = answer(alone, Request(prompt, 40)).tokens
    for act in ("cancel", "truncate", "shown", "rewind"):
        engine = make_reusing(artifact("dense"), **options)
        number = engine.add(Request(prompt, 40))
        told = run_until(engine, number, 12).tokens
        reach, shown = engine.find(number).reach, None
        if act == "cancel":
            engine.cancel(number)
            shown = len(told)
        elif act == "rewind":
            engine.rewind(number, reach + 1)
            told = told[: reach + 1] + run_until(engine, number, 6).tokens
            engine.cancel(number)
            shown = len(told)
        else:
            shown = reach + 1 if act == "truncate" else reach
            engine.truncate(number, reach + 1, None if act == "truncate" else shown)
        assert told == want[: len(told)]
        request = Request((*prompt, *want[:shown], *random_prompt(20, seed=10)), 30, logprobs=4)
        got, reuse = ask(engine, request)
        assert (reuse.kind, reuse.cached) == (ANSWER, 70 - 1 + shown), act
        check_equal(got, answer(alone, request))


@pytest.mark.parametrize("held", [False, True])
def test_the_next_turn_need_not_repeat_the_stop_token(artifact, held):
    """PX-4: a template may end a turn with another one."""
    prompt = random_prompt(70, seed=11)
    tokens = answer(make_engine(artifact("dense")), Request(prompt, 30)).tokens
    stop = tokens[7]
    engine = make_reusing(artifact("dense"), **MTP)
    number = engine.add(Request(prompt, 30, stops=(stop,), held=held))
    count = tokens.index(stop) + 1
    assert run_until(engine, number, count).tokens == tokens[:count]
    engine.truncate(number, count)
    shown = (*prompt, *tokens[: count - 1])
    alone = make_engine(artifact("dense"), **MTP)
    for more in ((stop, 3), (3,), ()):
        request = Request((*shown, *more), 20, logprobs=4)
        got, reuse = ask(engine, request)
        assert (reuse.kind, reuse.cached) == (ANSWER, len(shown) - 1)
        check_equal(got, answer(alone, request))


def test_cancelled_prompt_goes_on_where_it_was(artifact):
    """PX-4: two chunks of a prompt are there for the next try."""
    engine = make_reusing(artifact("dense"), prefill_chunk=50)
    request = Request(random_prompt(200, seed=13), 20, logprobs=4)
    number = engine.add(request)
    engine.step()
    engine.step()
    engine.cancel(number)
    got, reuse = ask(engine, request)
    assert (reuse.kind, reuse.cached) == (ANSWER, 100)
    check_equal(got, answer(make_engine(artifact("dense")), request))


def test_nothing_of_a_poisoned_request_is_reused(artifact):
    """PX-8: what it left and what it went on from is dropped."""
    engine = make_reusing(artifact("dense"), lanes=2)
    prompt = random_prompt(100, seed=14)
    request = Request(prompt, 30, boundaries=(60, 95))
    number = engine.add(request)
    run_until(engine, number, 3)
    for layer in engine.state.decoder.recurrent.layers:
        layer.state[engine.find(number).lane].fill_(float("nan"))
    assert run_all(engine)[number].finish == "error"
    got, reuse = ask(engine, request)
    assert (reuse.kind, reuse.cached) == (NONE, 0)
    assert got.tokens == answer(make_engine(artifact("dense")), request).tokens
    require_all_free(engine)


def test_without_reuse_nothing_is_kept(artifact):
    engine = make_engine(artifact("dense"))
    assert engine.settings.snapshots == 0 and not engine.state.snapshots[0].numel()
    request = Request(random_prompt(100, seed=15), 10, boundaries=(60, 95))
    for _ in range(2):
        _, reuse = ask(engine, request)
        assert (reuse.kind, reuse.cached, reuse.diverged) == (NONE, 0, None)
    assert engine.pages.free == engine.settings.pages


@pytest.mark.parametrize("seed", range(3))
def test_random_conversations_on_few_pages_give_what_they_give_alone(artifact, seed):
    """PX-5, PX-6: any order of turns, branches, ends and pressure; nothing is lost in the end."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low, high):
        return int(torch.randint(low, high, (1,), generator=generator))

    options = {**(MTP if seed != 1 else {}), "max_context": 512, "prefill_chunk": 64}
    engine = make_reusing(
        artifact("dense"), lanes=3, snapshots=2, host_cache_mib=(0, 2, 64)[seed],
        look_ahead=seed == 2, **(options | {"kv_capacity": 704}),
    )  # fmt: skip
    alone = make_engine(artifact("dense"), **options)
    texts = [random_prompt(draw(1, 150), seed=100 + n) for n in range(4)]
    live, answers = {}, {}
    for _ in range(20):
        text = texts[draw(0, len(texts))]
        whole = text[: draw(1, 2 * len(text) + 1)]
        prompt = (*whole, *random_prompt(draw(0, 40), seed=draw(0, 9)))[:400]
        request = Request(prompt, draw(1, 60), boundaries=(len(prompt) // 2 + 1,), logprobs=16)
        live[engine.add(request)] = request
        for _ in range(draw(1, 12)):
            collect(answers, engine.step())
        if draw(0, 4) == 0 and engine.busy:
            number = draw(0, max(live) + 1)
            engine.cancel(number)
            live.pop(number, None)
        done = [n for n in live if n in answers and answers[n].finish]
        texts += [(*live[n].prompt, *answers[n].tokens)[:400] for n in done[-1:]]
    while engine.busy:
        collect(answers, engine.step())
    assert engine.prefixes.gauges["cached_tokens"] > 200
    for number, request in live.items():
        got, want = answers[number], answer(alone, request)
        assert (got.tokens, got.finish) == (want.tokens, want.finish)
        assert chosen_gap(got, want) <= EXACT
    require_all_free(engine)
