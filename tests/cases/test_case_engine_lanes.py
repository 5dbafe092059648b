"""Public reports about sequences that share an engine: cases 66 and 68."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from builders.engines import Answer, answer, collect, make_engine, random_prompt, run_all
from builders.tiny_models import build_model, convert_model
from ninfer_formats.reader import Artifact
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.request import CANCELLED, ERROR, LENGTH, Request, Sampling
from ninfer_runtime.engine.sequence import Phase
from ninfer_runtime.errors import RequestError

SPECULATION = pytest.mark.parametrize(
    "options", [{}, {"speculator": "mtp", "draft_tokens": 2}], ids=["plain", "mtp"]
)
LANES = 4


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("lanes")
    return convert_model(build_model(vision=False).write(folder / "m"), folder / "m.ninfer")


@pytest.fixture(scope="module")
def lone(artifact) -> Callable[[Request], list[int]]:
    """Tokens of a request that has an engine, without drafts, for itself."""
    engine = make_engine(artifact)
    found: dict[tuple[int, ...], list[int]] = {}

    def run(request: Request) -> list[int]:
        assert request.sampling == Sampling()
        if request.prompt not in found:
            found[request.prompt] = answer(engine, request).tokens
        return found[request.prompt]

    return run


@SPECULATION
@pytest.mark.parametrize("lanes", [1, 3, 8])
def test_case_66_any_number_of_lanes_keeps_every_sequence_apart(artifact, lone, lanes, options):
    requests = [Request(random_prompt(10 + 3 * i, seed=i), 40) for i in range(lanes + 1)]
    engine = make_engine(artifact, lanes=lanes, **options)
    numbers = [engine.add(request) for request in requests]
    answers = run_all(engine)
    assert [answers[number].tokens for number in numbers] == [lone(r) for r in requests]


@SPECULATION
def test_case_66_identical_prompts_give_identical_answers(artifact, lone, options):
    request = Request(random_prompt(30, seed=1), 80)
    engine = make_engine(artifact, lanes=LANES, **options)
    numbers = [engine.add(request) for _ in range(LANES)]
    answers = run_all(engine)
    assert [answers[number].tokens for number in numbers] == [lone(request)] * LANES


def mask_of_two(vocabulary: int) -> Callable[[tuple[int, ...]], torch.Tensor]:
    """Allow everything twice, then nothing."""
    words = -(-vocabulary // 32)

    def mask(emitted: tuple[int, ...]) -> torch.Tensor:
        return torch.full((words,), -1 if len(emitted) < 2 else 0, dtype=torch.int32)

    return mask


def state_of(engine: Engine) -> dict[str, Any]:
    """Everything that requests take and must give back."""
    return {
        "lanes": sorted(engine._free_lanes),
        "pages": engine.pages.free,
        "running": int(engine.table.counts.sum()),
        "sequences": len(engine._sequences),
        "waiting": len(engine._waiting),
    }


def refuse(engine: Engine) -> None:
    """Offer what can never run."""
    for wrong in (
        Request((), 4),
        Request(random_prompt(400), 4),
        Request((3, 10**6), 4),
        Request((3,), 0),
    ):
        with pytest.raises(RequestError):
            engine.add(wrong)


@SPECULATION
@pytest.mark.parametrize("look_ahead", [False, True])
def test_case_68_aborts_at_any_moment_give_everything_back(artifact, lone, options, look_ahead):
    """100 aborts in every phase, and 20 requests that end in an error in the middle."""
    engine = make_engine(artifact, lanes=LANES, prefill_chunk=16, look_ahead=look_ahead, **options)
    start, random = state_of(engine), np.random.default_rng(68)
    mask = mask_of_two(engine.geometry.text.vocab_size)
    answers: dict[int, Answer] = {}
    aborted: dict[Phase, int] = dict.fromkeys(Phase, 0)
    failing = 0
    while sum(aborted.values()) < 100 or failing < 20:
        if len(engine._sequences) < LANES + 3:
            prompt = random_prompt(int(random.integers(1, 60)), seed=int(random.integers(99)))
            fails = failing < 20 and random.random() < 0.3
            engine.add(Request(prompt, 40, mask=mask if fails else None))
            failing += fails
        if random.random() < 0.5:
            collect(answers, engine.step())
        live = [s for s in engine._sequences.values() if s.request.mask is None]
        if live and random.random() < 0.6:
            victim = live[int(random.integers(len(live)))]
            aborted[victim.phase] += 1
            step = engine.cancel(victim.number)
            assert step is not None and step.finish == CANCELLED
            assert engine.cancel(victim.number) is None
    refuse(engine)
    for number in list(engine._sequences):
        if engine._sequences[number].request.mask is None:
            engine.cancel(number)
    for number, got in run_all(engine).items():
        answers.setdefault(number, Answer()).finish = got.finish
    assert state_of(engine) == start
    assert min(aborted[p] for p in (Phase.WAITING, Phase.PREFILL, Phase.RUNNING)) >= 5
    assert [a.finish for a in answers.values()].count(ERROR) == 20

    requests = [Request(random_prompt(10 + 3 * i, seed=i), 40) for i in range(LANES)]
    numbers = [engine.add(request) for request in requests]
    last = run_all(engine)
    assert [last[number].finish for number in numbers] == [LENGTH] * LANES
    assert [last[number].tokens for number in numbers] == [lone(r) for r in requests]
    assert state_of(engine) == start
