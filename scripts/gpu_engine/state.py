"""State of sequences: saved, taken back, restricted, poisoned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from builders.engines import Answer, collect, run_all
from gpu_engine.bench import SPECULATIONS, Bench
from gpu_engine.rounds import run
from gpu_engine.rows import Row, expect
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.request import Request, Sampling

DRAWN = Sampling(temperature=0.8, top_k=20, repetition=1.2, presence=0.3, seed=7, bias={5: 1.5})
MODELS = ("demo", "moe-256")


def engines(bench: Bench, **more: Any) -> Iterator[tuple[str, Engine]]:
    for model in MODELS:
        for name, options in SPECULATIONS.items():
            artifact = bench.shelf.take(model)
            yield f"{model} {name}", bench.start(artifact, lanes=4, **options, **more)


def advance(engine: Engine, number: int, answers: dict[int, Answer], tokens: int) -> Answer:
    """Step until a request has at least `tokens` tokens."""
    while number not in answers or len(answers[number].tokens) < tokens:
        collect(answers, engine.step())
    return answers[number]


def check_snapshots(bench: Bench) -> Iterator[Row]:
    """N-66: what is restored goes on as if it had never stopped, in its lane and in another."""
    for name, engine in engines(bench, look_ahead=False):
        for kind, sampling in (("greedy", Sampling()), ("drawn", DRAWN)):
            request = Request(bench.prompt(100, 40), 60, sampling)
            answers: dict[int, Answer] = {}
            number = engine.add(request)
            before = len(advance(engine, number, answers, 20).tokens)
            saved = engine.snapshot(number)
            while engine.busy:
                collect(answers, engine.step())
            want = answers[number].tokens[before:]
            other = engine.add(Request(bench.prompt(33, 41), 90))
            for place in ("its own lane", "another lane"):
                if place == "another lane":
                    advance(engine, other, {}, 1)
                restored = engine.restore(saved)
                got: dict[int, Answer] = {}
                while restored not in got or got[restored].finish is None:
                    collect(got, engine.step())
                case = f"{name} {kind}, restored in {place}"
                yield expect(case, got[restored].tokens == want, f"{len(want)} tokens")
            engine.drop(saved)
            run_all(engine)
            yield expect(f"{name} {kind}, pages", engine.pages.free == engine.settings.pages)


def check_rewinding(bench: Bench) -> Iterator[Row]:
    """EN-4, EN-5: tokens taken back come again."""
    for name, engine in engines(bench):
        request = Request(bench.prompt(50, 42), 60)
        (want,) = run(engine, [request])
        for drop in range(5):
            number, answers = engine.add(request), {}
            advance(engine, number, answers, 12)
            sequence = engine._sequences[number]
            emitted = answers[number].tokens
            keep = max(sequence.reach, len(emitted) - drop)
            engine.rewind(number, keep)
            del emitted[keep:]
            while engine.busy:
                collect(answers, engine.step())
            yield expect(f"{name}, {drop} taken back", answers[number].tokens == want.tokens)
        number = engine.add(request)
        have = len(advance(engine, number, {}, 9).tokens)
        engine.truncate(number, have)
        yield expect(f"{name}, cut", run(engine, [request])[0].tokens == want.tokens)


def check_masks(bench: Bench) -> Iterator[Row]:
    """EN-3: even and odd ids in turn, beside a request without a mask."""
    for name, engine in engines(bench):
        words = -(-engine.geometry.text.vocab_size // 32)
        even = torch.full((words,), 0x55555555, dtype=torch.int32)
        odd = ~even

        def mask(emitted: tuple[int, ...], even=even, odd=odd) -> torch.Tensor:
            return odd if len(emitted) % 2 else even

        free = Request(bench.prompt(25, 43), 40)
        (want,) = run(engine, [free])
        got = run(engine, [Request(bench.prompt(9, 44), 12, mask=mask), free])
        yield expect(f"{name}, masked", [t % 2 for t in got[0].tokens] == [0, 1] * 6)
        yield expect(f"{name}, beside a mask", got[1].tokens == want.tokens)


def check_poison(bench: Bench) -> Iterator[Row]:
    """N-68, EN-6: NaN in a lane's recurrent state, keys or window ends that request alone."""
    for name, engine in engines(bench):
        healthy = [Request(bench.prompt(30 + i, 45 + i), 40) for i in range(2)]
        want = [run(engine, [request])[0].tokens for request in healthy]
        for place in ("state", "keys", "window"):
            numbers, answers = [engine.add(r) for r in (healthy[0], healthy[1], healthy[0])], {}
            advance(engine, numbers[1], answers, 6)
            sequence = engine._sequences[numbers[1]]
            layer = engine.state.decoder.recurrent.layers[0]
            if place == "keys":
                engine.state.decoder.kv[0].keys[sequence.pages[0]] = float("nan")
            else:
                getattr(layer, place)[sequence.lane] = float("nan")
            while engine.busy:
                collect(answers, engine.step())
            told = answers[numbers[1]].error or ""
            yield expect(f"{name}, poisoned {place}, error", "layer" in told, told[:80])
            beside = [answers[numbers[i]].tokens for i in (0, 2)]
            yield expect(f"{name}, poisoned {place}, others", beside == [want[0]] * 2)
            heirs = [a.tokens for a in run(engine, [*healthy, *healthy])]
            yield expect(f"{name}, poisoned {place}, heirs", heirs == want * 2)
