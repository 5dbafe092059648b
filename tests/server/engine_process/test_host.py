"""The loop of the engine process on the demo model (SV-4, SV-5, SV-7, SV-8, SV-13 to SV-17)."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import torch

from builders.engines import make_engine
from builders.live_hosts import LiveHost
from ninfer_runtime.engine.request import Sampling
from ninfer_runtime.models.qwen3_5.patch_grid import PatchGrid
from ninfer_runtime.server.engine_process.messages import (
    Admitted,
    Cancel,
    Ended,
    MediumPlace,
    Patches,
    Prefilled,
    PromptMedia,
    Said,
    WantPatches,
    WatchedAnswer,
)
from ninfer_runtime.server.requests import Constraint

MTP = {"speculator": "mtp", "draft_tokens": 3}
SPECULATION = pytest.mark.parametrize("spec", [{}, MTP], ids=["plain", "mtp"])
SCHEMA = json.dumps(
    {"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"],
     "additionalProperties": False}
)  # fmt: skip


def assert_empty(live: LiveHost) -> None:
    live.wait(lambda _: live.gauges[-1].pages_free == live.engine.settings.pages)
    assert not live.engine.busy
    assert len(live.engine._free_lanes) == live.engine.settings.lanes


@pytest.fixture(scope="module")
def demo_engines(demo):
    """One engine of a kind for all tests that leave it as they found it."""
    kept = {}

    def give(**options):
        key = tuple(sorted(options.items()))
        if key not in kept:
            kept[key] = make_engine(demo, max_context=512, lanes=2, **options)
        return kept[key]

    return give


@SPECULATION
@pytest.mark.parametrize("ahead", [False, True], ids=["soon", "late"])
def test_what_was_found_in_the_text_is_exact_to_the_token(host, demo_engines, spec, ahead):
    """SV-14, SV-15, SV-16, SV-17: the same with drafts and without, read late or at once."""
    live = host(demo_engines(look_ahead=ahead, **spec))
    tokenizer, think = live.tokenizer, WatchedAnswer(True)
    text, end = live.ask(1, watch=think)
    tokens = tokenizer.encode(text)
    assert (end.reason, end.tokens) == ("stop", len(tokens) + 1)
    assert end.reasoning == tokens.index(tokenizer.added["</think>"]) + 1
    body, answer = text.split("</think>")

    # A stop string in the middle of the answer.
    stop = answer.strip()[0]
    cut, end = live.ask(2, watch=WatchedAnswer(True, stop=(stop,)))
    assert (end.reason, end.stop) == ("stop", stop)
    assert cut == text[: text.index("</think>") + len("</think>")] + answer[: answer.index(stop)]
    assert end.tokens == len(tokenizer.encode(cut + stop))

    # A budget, and the answer behind it.
    close = tuple(tokenizer.encode("\n</think>\n\n"))
    closed, end = live.ask(3, watch=WatchedAnswer(True, 4, close))
    assert closed.startswith(tokenizer.decode(tokens[:4]) + "\n</think>\n\n")
    assert (end.closed_at, end.reasoning) == (4, 4 + len(close) - 1)

    # A grammar behind the reasoning, which stays what it was.
    constraint = Constraint("json_schema", SCHEMA)
    masked, end = live.ask(4, watch=WatchedAnswer(True, constraint=constraint))
    assert masked.startswith(body + "</think>\n\n") and end.reason == "stop"
    assert set(json.loads(masked.split("</think>")[1])) == {"a"}

    # Both.
    both, end = live.ask(5, watch=WatchedAnswer(True, 4, close, constraint=constraint))
    assert set(json.loads(both.split("</think>")[1])) == {"a"} and end.closed_at == 4

    # A grammar from the first token on.
    alone, end = live.ask(6, watch=WatchedAnswer(False, constraint=Constraint("regex", "[xyz]{3}")))
    assert len(alone) == 3 and set(alone) <= set("xyz") and end.tokens == 3 + 1
    assert_empty(live)


def test_drafts_change_no_answer(host, demo_engines):
    """SV-17: text, counts and ends with and without them."""
    found = []
    for spec in ({}, MTP):
        live = host(demo_engines(look_ahead=False, **spec))
        close = tuple(live.tokenizer.encode("\n</think>\n\n"))
        constraint = Constraint("json_schema", SCHEMA)
        for key, watch in enumerate(
            [
                WatchedAnswer(True), WatchedAnswer(True, 6, close),
                WatchedAnswer(True, constraint=constraint),
                WatchedAnswer(True, 7, close, constraint=constraint),
            ]
        ):  # fmt: skip
            for limit in (30, 9)[: 1 + (key == 1)]:
                text, end = live.ask(key * 100 + limit, watch=watch, max_tokens=limit)
                found.append((text, end.reason, end.tokens, end.reasoning, end.closed_at))
        live.stop()
    half = len(found) // 2
    assert found[:half] == found[half:]


def test_an_answer_may_end_where_the_round_behind_it_went_on(host, demo_engines):
    """SV-15, SV-16: the limit of tokens falls into every place of a round."""
    live = host(demo_engines(look_ahead=False, **MTP))
    close = tuple(live.tokenizer.encode("\n</think>\n\n"))
    for limit in (1, 3, 4, 6, 7, 8, 12):
        text, end = live.ask(limit, watch=WatchedAnswer(True, 3, close), max_tokens=limit)
        assert end.tokens == limit if end.reason == "length" else end.tokens <= limit
        assert end.reasoning <= end.tokens
        assert end.open_reasoning == ("</think>" not in text)
    assert_empty(live)


def test_requests_get_lanes_in_the_order_they_came(host, demo):
    """SV-5: also behind one whose grammar is still compiled."""
    live = host(make_engine(demo, max_context=256, lanes=1))
    live.submit(0, max_tokens=20, stops=())
    live.submit(1, max_tokens=4, watch=WatchedAnswer(False, constraint=Constraint("regex", "a+b")))
    for key in (2, 3):
        live.submit(key, max_tokens=4)
    for key in range(4):
        live.end_of(key)
    assert [m.key for m in live.heard if isinstance(m, Admitted)] == [0, 1, 2, 3]


@pytest.mark.parametrize("where", ["arriving", "waiting", "prefilling", "running"])
def test_a_cancelled_request_is_gone_before_the_next_round(host, demo, where):
    """SV-7: and what it held is free; another one gets it."""
    live = host(make_engine(demo, max_context=512, lanes=1, prefill_chunk=8))
    engine, step = live.engine, live.engine.step
    steps = {"after": 0}
    if where in ("arriving", "waiting"):
        live.submit(0, max_tokens=400, stops=())
        live.wait_for(Said, 0)
    if where == "arriving":
        live.submit(7)  # in the engine's own queue
    long = "word " * 60
    live.submit(1, long if where == "prefilling" else "hi", max_tokens=400, stops=())
    if where == "prefilling":
        live.wait_for(Prefilled, 1)
    elif where == "running":
        live.wait_for(Said, 1)

    def counted():
        steps["after"] += 1
        return step()

    engine.step = counted
    live.inbox.put(Cancel(1))
    assert live.end_of(1).reason == "cancelled"
    # One that had begun when the message came, and one more until the count is read here.
    assert steps["after"] <= 2
    if where == "prefilling":
        done = [m for m in live.heard if isinstance(m, Prefilled) and m.key == 1][-1].tokens
        assert done < 200, "it was prefilled to its end"
    for key in (0, 7):
        live.inbox.put(Cancel(key))
    live.submit(2, max_tokens=3)
    assert live.end_of(2).tokens == 3
    assert_empty(live)


def test_a_joining_request_stalls_others_for_one_chunk(host, demo, monkeypatch):
    """SV-8: chunk and round take turns, whatever is joining, with masks and without."""
    engine = make_engine(demo, max_context=512, lanes=2, prefill_chunk=16, look_ahead=True)
    work: list[str] = []
    from ninfer_runtime.engine import engine as module

    run_chunk, run_round = module.run_chunk, engine._rounds.run
    monkeypatch.setattr(module, "run_chunk", lambda *a: work.append("chunk") or run_chunk(*a))
    engine._rounds.run = lambda *a: work.append("round") or run_round(*a)
    live = host(engine)
    live.submit(0, max_tokens=60, stops=())
    live.wait_for(Said, 0)
    begun = len(work)
    constraint = Constraint("regex", "[a-z ]+")
    live.submit(1, "word " * 40, max_tokens=5, watch=WatchedAnswer(False, constraint=constraint))
    live.submit(2, "word " * 40, max_tokens=5)
    for key in (1, 2, 0):
        live.end_of(key)
    joined = "".join(name[0] for name in work[begun:])
    assert joined.count("c") >= 6 and "cc" not in joined


def test_pictures_are_seen_once_and_between_rounds(host, demo):
    """SV-8, SV-13: patches are asked for when their rows are not there."""
    live = host(make_engine(demo, max_context=512, lanes=2))
    pad = live.tokenizer.added["<|image_pad|>"]
    grid, patches = PatchGrid(1, 4, 4), torch.randn(16, 1536).numpy()
    ids = [*live.tokenizer.encode("<|im_start|>user\nsee"), pad, pad, pad, pad, 10, 11]
    begin = ids.index(pad)
    media = PromptMedia(
        (MediumPlace(b"picture", grid, begin, begin + 4),),
        np.arange(begin, begin + 4), np.tile(np.arange(len(ids), dtype=np.int32), (3, 1)),
    )  # fmt: skip
    ends = []
    for key in (0, 1):
        message = _submit(live, key, ids, media)
        live.inbox.put(message)
        if key == 0:
            assert live.wait_for(WantPatches, 0).item == 0
            live.inbox.put(Patches(99, 0, patches))  # somebody else's
            live.submit(5, max_tokens=2)
            live.inbox.put(Patches(0, 0, patches))
        ends.append((live.end_of(key), live.text_of(key)))
    assert ends[0][1] == ends[1][1] and ends[0][0].tokens == ends[1][0].tokens == 6
    assert [m.key for m in live.heard if isinstance(m, WantPatches)] == [0]
    admitted = [m.key for m in live.heard if isinstance(m, Admitted)]
    assert admitted.index(0) < admitted.index(5), "it was overtaken"
    live.inbox.put(_submit(live, 8, ids, PromptMedia((MediumPlace(b"other", grid, begin, begin + 4),), media.places, media.positions)))  # noqa: E501  # fmt: skip
    live.wait_for(WantPatches, 8)
    live.inbox.put(Cancel(8))
    assert live.end_of(8).reason == "cancelled"
    assert_empty(live)


def _submit(live: LiveHost, key: int, ids: list[int], media: PromptMedia):
    from ninfer_runtime.server.engine_process.messages import Submit

    return Submit(key, np.array(ids, np.int32), 6, Sampling(), (), WatchedAnswer(None), media=media)


def test_what_the_engine_refuses_ends_alone(host, demo):
    """SV-5: a grammar that is none, a prompt that does not fit."""
    live = host(make_engine(demo, max_context=256, lanes=2))
    live.submit(0, max_tokens=30, stops=())
    live.submit(1, watch=WatchedAnswer(False, constraint=Constraint("regex", "(")))
    live.submit(2, "word " * 400)
    live.submit(3, max_tokens=3)
    for key, reason in ((1, "regular expression"), (2, "longer than the context")):
        end = live.end_of(key)
        assert end.reason == "error" and end.refused and reason in str(end.error)
    assert live.end_of(0).tokens == 30 and live.end_of(3).tokens == 3


def test_a_stop_lets_finish_what_has_begun(host, demo):
    """SV-4: within its limit."""
    live = host(make_engine(demo, max_context=256, lanes=1))
    live.submit(0, max_tokens=10, stops=())
    live.submit(1, max_tokens=10, stops=())
    live.wait_for(Said, 0)
    live.stop(limit=60)
    assert [live.end_of(key).reason for key in (0, 1)] == ["length", "length"]


def test_a_stop_cancels_what_takes_longer(host, demo):
    """SV-4."""
    live = host(make_engine(demo, max_context=512, lanes=1))
    for key in (0, 1, 2):
        live.submit(key, max_tokens=450, stops=())
    live.wait_for(Said, 0)
    live.stop(limit=0.1)
    assert [live.end_of(key).reason for key in (0, 1, 2)] == ["cancelled"] * 3
    assert not live.engine.busy


def test_the_loop_sleeps_when_there_is_nothing_to_do(host, demo):
    """SV-7: it wakes up for a message."""
    live = host(make_engine(demo, max_context=256, lanes=1))
    calls = []
    take = live.inbox.take
    live.inbox.take = lambda wait: calls.append(wait) or take(wait)
    live.ask(0, max_tokens=3)
    before = len(calls)
    threading.Event().wait(0.2)
    assert len(calls) == before and calls[-1] is None
    assert isinstance(live.ask(1, max_tokens=3)[1], Ended)


@SPECULATION
@pytest.mark.parametrize("ahead", [False, True], ids=["soon", "late"])
def test_a_constrained_answer_follows_reasoning_that_the_model_left(
    host, demo_engines, spec, ahead
):
    """SV-17: a stop id inside the reasoning, its first token or a later one, does not count."""
    live = host(demo_engines(look_ahead=ahead, **spec))
    stop, constraint = live.tokenizer.stops[0], Constraint("json_schema", SCHEMA)
    whole, _ = live.ask(0, watch=WatchedAnswer(True))
    ids = live.tokenizer.encode(whole)
    place = next(
        i
        for i, id in enumerate(ids)
        if i
        and live.tokenizer.decode((id,)).isascii()
        and live.tokenizer.decode((id,)).strip().isalpha()
        and id not in ids[:i]
    )
    for key, (stops, sampling, kept) in enumerate(
        [
            (None, Sampling(bias={stop: 100.0}), 0),
            ((*live.tokenizer.stops, ids[place]), Sampling(), place),
        ]
    ):
        asked = {"stops": stops, "sampling": sampling}
        text, end = live.ask(
            10 + key, watch=WatchedAnswer(True, constraint=constraint), max_tokens=40, **asked
        )
        head, answer = text.split("</think>\n\n")
        assert head == live.tokenizer.decode(ids[:kept]) + "\n"
        assert set(json.loads(answer)) == {"a"} and end.reason == "stop"
        assert (end.closed_at, end.open_reasoning) == (kept, False)
        # Without a constraint the model's own end stands.
        text, end = live.ask(20 + key, watch=WatchedAnswer(True), **asked)
        assert (end.reason, end.open_reasoning, end.tokens) == ("stop", True, kept + 1)
    assert_empty(live)


def test_a_picture_without_memory_ends_its_request_alone(host, demo, monkeypatch):
    """SV-2: the engine goes on."""
    live = host(make_engine(demo, max_context=256, lanes=2))
    live.submit(0, max_tokens=30, stops=())

    def fail(*_):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr("ninfer_runtime.server.engine_process.arrivals.Arrivals._see", fail)
    media = PromptMedia(
        (MediumPlace(b"x", PatchGrid(1, 4, 4), 1, 5),), np.arange(1, 5), np.zeros((3, 8), np.int32)
    )
    live.submit(1, media=media)
    live.submit(2, max_tokens=3)
    end = live.end_of(1)
    assert (end.reason, end.refused) == ("error", False) and "memory" in str(end.error)
    assert live.end_of(0).tokens == 30 and live.end_of(2).tokens == 3
