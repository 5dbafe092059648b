"""Reuse of prefixes: from the device, from the host, under pressure; and what it takes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from builders.engines import Answer
from gpu_engine.allocation import held
from gpu_engine.bench import SPECULATIONS, Bench, prompt_logits
from gpu_engine.memory import SYNTHETIC, leave_empty, replaced
from gpu_engine.rounds import run
from gpu_engine.rows import Row, compare_tokens, expect
from ninfer_runtime.config import EngineConfig
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.request import Request
from ninfer_runtime.prefix.reuse import ANSWER
from ninfer_runtime.weights.source import WeightSource

CONTEXT, TURNS, TALKS = 1024, 4, 3
LONG_PROMPT = 20000


def check_prefixes(bench: Bench) -> Iterator[Row]:
    """PX-5, PX-6, MEM-19: conversations that take turns, each request with all pages: from the
    host the very same tokens as from the device, and those of requests alone up to a small lead."""
    for model in ("demo", "dense-256", "moe-256"):
        for name, options in SPECULATIONS.items():
            for kind in ("bf16", "int8"):
                yield from compare_places(bench, model, f"{model} {name} {kind}",
                                          {**options, "kv_kind": kind})  # fmt: skip


def compare_places(bench: Bench, model: str, case: str, options: dict) -> Iterator[Row]:
    artifact = bench.shelf.take(model)
    options = {"max_context": CONTEXT, "prefill_chunk": 256, "prefix_reuse": True, **options}
    roomy = bench.start(artifact, lanes=8, snapshots=64, host_cache_mib=0, **options)
    want, _ = talk(bench, roomy, 20)
    tight = bench.start(
        artifact, lanes=2, kv_capacity=CONTEXT, snapshots=2, host_cache_mib=256, **options
    )
    before = held(bench)
    got, cached = talk(bench, tight, CONTEXT)
    after, gauges = held(bench), tight.prefixes.gauges
    pressed = gauges["pages_to_host"] > 0 and gauges["pages_from_host"] > 0
    yield expect(f"{case}, host is used", pressed and gauges["snapshots_on_host"] > 0, str(gauges))
    yield expect(f"{case}, every turn hits", cached, "")
    yield expect(f"{case}, driver not asked", before == after, f"{before} -> {after}")
    same = [answer.tokens for _, answer in got] == [answer.tokens for _, answer in want]
    yield expect(f"{case}, host as device", same, f"{len(got)} answers")
    alone = bench.start(artifact, **{**options, "prefix_reuse": False})
    request, last = want[-1]
    (cold,) = run(alone, [request])
    scale = float(prompt_logits(alone, request.prompt).abs().max())
    yield compare_tokens(f"{case}, as alone", last.tokens, cold, scale)


def talk(bench: Bench, engine: Engine, room: int) -> tuple[list[tuple[Request, Answer]], bool]:
    """Return the answers of conversations that take turns, in order, and whether every turn but
    the first went on from the end of the one before. With more `room` than 20 tokens a request
    reserves it, and is cut to 20 all the same."""
    prompts = [bench.prompt(150 + 37 * talk, 900 + talk) for talk in range(TALKS)]
    found, hits = [], True
    for turn in range(TURNS):
        for number, prompt in enumerate(prompts):
            request = Request(prompt, 20, logprobs=2, boundaries=(len(prompt) - 5,), held=room > 20)
            answer = ask(engine, request, room)
            found.append((Request(prompt, 20, logprobs=2), answer[0]))
            hits &= turn == 0 or answer[1] == ANSWER
            more = bench.prompt(31, 50 * turn + number)
            prompts[number] = (*prompt, *answer[0].tokens, *more)
    return found, hits


def ask(engine: Engine, request: Request, room: int) -> tuple[Answer, str]:
    most = min(room, engine.settings.max_context - len(request.prompt))
    number = engine.add(Request(
        request.prompt, max(20, most), logprobs=2, boundaries=request.boundaries, held=True
    ))  # fmt: skip
    sequence, answer = engine.find(number), Answer()
    assert sequence is not None
    while len(answer.tokens) < 20 and answer.finish is None:
        for step in engine.step():
            answer.extend(step)
    engine.truncate(number, max(20, sequence.reach))
    answer.tokens, answer.scores = answer.tokens[:20], answer.scores[:20]
    answer.finish = "length"
    return answer, sequence.reuse.kind


def check_large_prefixes(bench: Bench) -> Iterator[Row]:
    """How long it takes on a model of real size, whose weights are zeros: nothing is compared."""
    from ninfer_tools.synthetic.artifact import open_synthetic

    context = 32768
    config = EngineConfig(
        device=bench.device, max_context=context, kv_kind="int8", speculator="mtp",
        prefix_reuse=True, host_cache_mib=8192, snapshots=3,
    )  # fmt: skip
    with replaced(WeightSource, "load", leave_empty):
        began = time.monotonic()
        engine = Engine(open_synthetic(SYNTHETIC["27b"]), config)
        start = time.monotonic() - began
    cache = engine.prefixes.cache
    assert cache is not None
    host = cache.store.host
    yield expect(
        "start",
        True,
        f"{start:.1f} s, host {host.arena.numel() >> 20} MiB pinned "
        f"{host.arena.is_pinned()}, {host.slot_count} states, {host.page_count} pages",
    )
    texts = [bench.prompt(LONG_PROMPT, 70), bench.prompt(LONG_PROMPT, 71)]
    for name, text in (("cold", texts[0]), ("other", texts[1]), ("from the host", texts[0]),
                       ("again", texts[0])):  # fmt: skip
        # Reserves every page, so that whatever is kept must leave.
        number = engine.add(Request(text, context - LONG_PROMPT, boundaries=(LONG_PROMPT - 5,)))
        sequence = engine.find(number)
        assert sequence is not None
        synchronize(bench)
        began = time.monotonic()
        engine.step()
        synchronize(bench)
        first = time.monotonic() - began
        while sequence.phase.value != "running":
            engine.step()
        synchronize(bench)
        prefill = time.monotonic() - began
        began = time.monotonic()
        engine.cancel(number)
        synchronize(bench)
        yield expect(name, True, f"cached {sequence.reuse.cached} of {LONG_PROMPT}: first step "
                     f"{1e3 * first:.1f} ms, whole prompt {1e3 * prefill:.1f} ms, end "
                     f"{1e3 * (time.monotonic() - began):.1f} ms")  # fmt: skip


def synchronize(bench: Bench) -> None:
    if bench.on_gpu:
        torch.cuda.synchronize()
