"""What a prompt finds, and what it says when it finds less than all."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from builders.engines import answer, make_engine, random_prompt, score_gap
from builders.prefix_engines import ask, make_reusing, require_all_free
from ninfer_runtime.engine.request import MediaSpan, Request
from ninfer_runtime.prefix.reuse import NONE, SHARED, SYSTEM, TAIL, Reuse
from ninfer_runtime.prefix.taps import leave_medium, plan_taps
from tests.runtime.test_media import CASES, make_case, see, text_after


def test_case_70_a_system_prompt_hits_from_the_second_question_on(artifact):
    """PX-2: 480 tokens, then other questions of 20."""
    engine = make_reusing(artifact("shallow"), max_context=1024)
    system = random_prompt(480, seed=1)
    reuses = [
        ask(engine, Request((*system, *random_prompt(20, seed=s)), 4, boundaries=(480, 495)))[1]
        for s in range(2, 7)
    ]
    assert reuses[0] == Reuse(NONE, 0, None)
    assert [(r.kind, r.cached) for r in reuses[1:]] == [(SYSTEM, 479)] * 4


@pytest.mark.parametrize("length", [480, 900])
def test_case_70_an_unmarked_prefix_hits_from_the_second_request_on(artifact, length):
    """PX-2: nothing says where the prompts part. From the third on all of it is there."""
    engine = make_reusing(artifact("shallow"), max_context=1024)
    prefix = random_prompt(length, seed=1)
    reuses = [
        ask(engine, Request((*prefix, s, *random_prompt(19, seed=s)), 4))[1] for s in range(2, 7)
    ]
    assert reuses[1] == Reuse(TAIL, length + 20 - 65, length)
    assert reuses[1].cached >= 0.9 * length
    assert [(r.kind, r.cached) for r in reuses[2:]] == [(SHARED, length - 1)] * 3


def test_a_short_unmarked_prefix_hits_from_the_third_request_on(artifact):
    """PX-2: it is too short for a stop before its end, but not for one where prompts part."""
    engine = make_reusing(artifact("dense"))
    prefix = random_prompt(50, seed=1)
    reuses = [
        ask(engine, Request((*prefix, s, *random_prompt(10, seed=s)), 4))[1] for s in range(2, 6)
    ]
    assert [r.cached for r in reuses] == [0, 0, 49, 49]
    assert [r.diverged for r in reuses] == [None, 50, 50, 50]


def test_case_72_a_miss_names_the_first_position_that_differs(artifact):
    """PX-7: a changed key order, then a timestamp; the best candidate counts."""
    engine = make_reusing(artifact("dense"))
    prompt = list(random_prompt(200, seed=1))
    ask(engine, Request(tuple(prompt), 4, boundaries=(150, 195)))
    for place in (120, 33):
        changed = prompt.copy()
        changed[place] = (changed[place] + 1) % 289
        _, reuse = ask(engine, Request(tuple(changed), 4, boundaries=(150, 195)))
        assert (reuse.kind, reuse.diverged) == (NONE, place)
    _, reuse = ask(engine, Request((*prompt[:150], 5), 4))
    assert (reuse.kind, reuse.cached, reuse.diverged) == (SYSTEM, 149, 150)
    require_all_free(engine)


@pytest.mark.parametrize("options", [{}, {"speculator": "mtp", "draft_tokens": 3}])
@pytest.mark.parametrize("case", CASES)
def test_media_are_compared_by_digest_and_never_cut(artifact, case, options):
    """PX-1, PX-3: a conversation about a picture goes on; the same tokens with another picture
    agree up to the picture only."""
    alone = make_engine(artifact("dense"), **options)
    engine = make_reusing(artifact("dense"), prefill_chunk=23, **options)
    ids, media = see(alone, case)
    begins, pad = make_case(case)[1], make_case(case)[4]
    end = max(index for index, id in enumerate(ids) if id == pad) + 1
    media = replace(media, spans=(MediaSpan(b"one", begins[0], end),))
    cut = (begins[0] + end) // 2
    first = Request(ids, 12, media=media, logprobs=4, boundaries=(cut, len(ids)))
    turn, reuse = ask(engine, first)
    assert reuse.cached == 0
    for snapshot in engine.prefixes.cache.snapshots:
        assert not begins[0] < snapshot.tokens < end
    longer = text_after(media, len(turn.tokens))
    second = Request((*ids, *turn.tokens), 20, media=longer, logprobs=4)
    got, reuse = ask(engine, second)
    assert reuse.cached == len(second.prompt) - 1
    want = answer(alone, second)
    assert got.tokens == want.tokens and score_gap(got, want) <= 1e-5

    other = replace(media, rows=media.rows.flip(0), spans=(MediaSpan(b"two", begins[0], end),))
    third = Request(ids, 12, media=other, logprobs=4)
    got, reuse = ask(engine, third)
    assert reuse.diverged == begins[0] and reuse.cached <= begins[0]
    want = answer(alone, third)
    assert got.tokens == want.tokens and score_gap(got, want) <= 1e-5
    nameless = Request(ids, 12, media=replace(media, spans=()))
    assert ask(engine, nameless)[1] == Reuse()
    require_all_free(engine)


def test_stops_lie_behind_what_is_there_and_never_inside_media():
    """PX-3, PX-4."""
    spans = (MediaSpan(b"x", 100, 200),)
    assert leave_medium(101, spans) == 101  # its state ends where the medium begins
    assert leave_medium(102, spans) == leave_medium(200, spans) == 101
    assert leave_medium(201, spans) == 201
    assert plan_taps(500, (300, 495), (), 0, 0) == [(300, SYSTEM), (436, TAIL), (495, "prompt")]
    assert plan_taps(500, (300, 495), (), 299, 300) == [(495, "prompt")]
    assert plan_taps(500, (300, 495), (), 299, 400) == [(400, SHARED), (495, "prompt")]
    assert plan_taps(500, (150, 495), spans, 0, 0)[0] == (101, SYSTEM)
    assert plan_taps(50, (50, 70), (), 0, 0) == [(50, SYSTEM)]
    assert plan_taps(1, (), (), 0, 0) == []


def test_rows_of_media_in_front_do_not_change_what_follows(artifact):
    """A prompt without media has the symbols of its ids."""
    engine = make_reusing(artifact("dense"))
    names = engine.prefixes.names
    plain = names.encode((5, 6, 7), ())
    assert plain.tolist() == [5, 6, 7]
    first = names.encode((5, 6, 7), (MediaSpan(b"a", 1, 2),))
    second = names.encode((5, 6, 7), (MediaSpan(b"b", 1, 2),))
    assert torch.equal(torch.from_numpy(first), torch.tensor([5, 6 + (1 << 32), 7]))
    assert second[1] != first[1] and second[2] == 7
    assert names.encode((5, 6, 7), (MediaSpan(b"a", 1, 2),)).tolist() == first.tolist()
