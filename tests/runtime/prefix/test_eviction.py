"""Who leaves the device, who leaves the host, and that no request waits for it."""

from __future__ import annotations

import pytest

from builders.engines import answer, make_engine, random_prompt, score_gap
from builders.prefix_engines import ask, make_reusing, require_all_free
from ninfer_runtime.engine.request import Request
from ninfer_runtime.prefix.reuse import ANSWER, NONE

MTP = {"speculator": "mtp", "draft_tokens": 3}
# Enough of them that a random answer soon ends.
STOPS = tuple(range(0, 289, 20))
LONG = {"max_context": 1024, "prefill_chunk": 256}


def talk(engine, texts, count=20):
    """Ask each of `texts`, once; return prompts that continue the answers."""
    turns = []
    for text in texts:
        told, _ = ask(engine, Request(text, count, boundaries=(len(text) - 5,)))
        turns.append((*text, *told.tokens, *random_prompt(20, seed=len(text))))
    return turns


@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_reservations_push_pages_to_the_host_and_they_come_back(artifact, kind):
    """PX-6, PX-5: every request reserves all pages there are; the conversation goes on all the
    same, from the host, and gives what it gives alone."""
    engine = make_reusing(artifact("dense"), kv_kind=kind, snapshots=1, **LONG, **MTP)
    alone = make_engine(artifact("dense"), kv_kind=kind, **LONG, **MTP)
    (turn,) = talk(engine, [random_prompt(330, seed=1)])
    for seed in range(3):
        ask(engine, Request(random_prompt(50, seed=seed + 2), 974, stops=STOPS))
    gauges = engine.prefixes.gauges
    assert gauges["pages_to_host"] >= 5 and gauges["evicted"] == 0
    request = Request(turn, 1024 - len(turn), stops=STOPS, logprobs=3)
    got, reuse = ask(engine, request)
    assert (reuse.kind, reuse.cached) == (ANSWER, len(turn) - 21)
    want = answer(alone, request)
    assert got.tokens == want.tokens
    assert score_gap(got, want) <= (1e-5 if kind == "fp32" else 2e-2)
    assert engine.prefixes.gauges["pages_from_host"] >= 5
    require_all_free(engine)


def test_without_room_on_the_host_snapshots_make_way(artifact):
    """PX-6: kept pages never hold up a request."""
    engine = make_reusing(artifact("dense"), host_cache_mib=0, **LONG)
    (turn,) = talk(engine, [random_prompt(330, seed=1)])
    _, reuse = ask(engine, Request(random_prompt(50, seed=2), 974, stops=STOPS))
    assert reuse.kind == NONE
    assert engine.prefixes.gauges["evicted"] > 0
    _, reuse = ask(engine, Request(turn, 20))
    assert reuse.cached == 0
    require_all_free(engine)


def test_a_request_behind_busy_lanes_waits_and_evicts_nothing(artifact):
    """PX-6: pages that lanes hold are not there, whatever would be evicted."""
    engine = make_reusing(artifact("dense"), lanes=2, **{**LONG, "kv_capacity": 1024})
    talk(engine, [random_prompt(330, seed=1)])
    busy = engine.add(Request(random_prompt(40, seed=2), 500))
    engine.step()
    late = engine.add(Request(random_prompt(40, seed=3), 900))
    before = engine.prefixes.gauges
    for _ in range(5):
        engine.step()
    assert engine.waiting == 1
    assert {**engine.prefixes.gauges, "saved": 0} == {**before, "saved": 0}
    engine.cancel(busy)
    engine.step()
    assert engine.waiting == 0
    engine.cancel(late)
    require_all_free(engine)


def test_sixteen_snapshots_are_kept_and_the_least_recently_used_goes_first(artifact):
    """PX-2: four on the device, the others on the host; a used one outlives newer ones."""
    engine = make_reusing(artifact("shallow"), host_cache_mib=2)
    texts = [random_prompt(100, seed=seed) for seed in range(8)]
    turns = talk(engine, texts)  # each leaves two
    assert engine.prefixes.gauges["snapshots"] >= 16
    assert engine.prefixes.gauges["snapshots_on_device"] <= 4
    assert ask(engine, Request(turns[0], 5))[1].kind == ANSWER
    host = engine.prefixes.cache.store.host
    assert host.slot_count >= 13 and host.arena.numel() <= 2 << 20
    while engine.prefixes.gauges["evicted"] < 4:
        turns += talk(engine, [random_prompt(100, seed=len(turns) + 50)])
        ask(engine, Request(turns[0], 5))
    assert ask(engine, Request(turns[0], 5))[1].cached >= 100
    assert ask(engine, Request(turns[1], 5))[1].cached < 100
    require_all_free(engine)


def test_case_43_side_requests_and_tool_loops_keep_the_conversation(artifact):
    """PX-2: a side request of 50 tokens after three turns, then 50 steps without a new
    user; of every prompt at least 95% of the one before is there."""
    engine = make_reusing(artifact("shallow"), max_context=1408, prefill_chunk=512)
    prompt, before = random_prompt(500, seed=1), 0
    for step in range(53):
        request = Request(prompt, 6, boundaries=(300, len(prompt) - 4))
        told, reuse = ask(engine, request)
        assert reuse.cached >= 0.95 * before, step
        if step < 3:
            ask(engine, Request(random_prompt(50, seed=step), 20, boundaries=(10, 46)))
        before = len(prompt)
        prompt = (*prompt, *told.tokens, *random_prompt(10, seed=step + 100))
    assert engine.prefixes.gauges["misses"] == 4
    require_all_free(engine)


def test_many_side_requests_do_not_drive_out_a_conversation(artifact):
    """PX-2: more of them than there are places; each finds what is common to them all the same."""
    engine = make_reusing(artifact("shallow"), max_context=512, host_cache_mib=2)
    (turn,) = talk(engine, [random_prompt(300, seed=1)])
    for seed in range(30):
        side = Request((*random_prompt(30, seed=9), seed, 5, 6), 3, boundaries=(30, 32))
        reuse = ask(engine, side)[1]
        assert reuse.cached == (29 if seed else 0)
    assert engine.prefixes.gauges["evicted"] > 0
    assert ask(engine, Request(turn, 5))[1].cached == len(turn) - 21
    require_all_free(engine)


def test_case_71_forty_prompts_in_turn_leave_room_for_the_last_five(artifact):
    """PX-2: no restart is needed, evictions are counted."""
    engine = make_reusing(artifact("shallow"), max_context=512)
    texts = [random_prompt(200, seed=seed) for seed in range(40)]

    def ask_all(some):
        kinds = []
        for text in some:
            _, reuse = ask(engine, Request((*text, 1, 2, 3), 2, boundaries=(200, 201)))
            kinds.append(reuse.cached >= 199)
        return kinds

    ask_all(texts)
    ask_all(texts)
    assert engine.prefixes.gauges["evicted"] > 0
    ask_all(texts[-5:])
    assert ask_all(texts[-5:]) == ask_all(texts[-5:]) == [True] * 5


def test_pages_without_a_lane_count_as_available(artifact):
    """PX-6: whatever is kept, a request can have them all."""
    engine = make_reusing(artifact("dense"), **LONG)
    talk(engine, [random_prompt(330, seed=1)])
    pool = engine.pages
    assert pool.free + pool.idle == pool.available == 16
    assert pool.kept == pool.idle == engine.prefixes.gauges["pages"] == 5
    number = engine.add(Request(random_prompt(330, seed=1), 100))
    engine.step()
    assert pool.available == 16 - 7  # the lane shares pages of the snapshot
    engine.cancel(number)
    assert pool.available == 16
