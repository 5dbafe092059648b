"""Engines on the CPU, and the plainest ways to run them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ninfer_formats.reader import Artifact
from ninfer_runtime.config import EngineConfig
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.prefill import Place, run_chunk, text_positions
from ninfer_runtime.engine.request import Media, Request, Sampling, Step, TokenScore

CPU = torch.device("cpu")


def make_engine(artifact: Artifact, **options: Any) -> Engine:
    """Return an engine on the CPU with room for 256 tokens in every lane."""
    context = options.setdefault("max_context", 256)
    options.setdefault("kv_capacity", context * options.get("lanes", 1))
    return Engine(artifact, EngineConfig(device="cpu", **options))


@dataclass
class Answer:
    """All that a request gave."""

    tokens: list[int] = field(default_factory=list)
    scores: list[TokenScore] = field(default_factory=list)
    finish: str | None = None
    error: str | None = None
    rounds: int = 0

    def extend(self, step: Step) -> None:
        assert self.finish is None, "a finished request said more"
        self.tokens.extend(step.tokens)
        self.scores.extend(step.scores)
        self.finish, self.error = step.finish, step.error
        self.rounds += 1


def collect(answers: dict[int, Answer], steps: Iterable[Step]) -> None:
    for step in steps:
        answers.setdefault(step.number, Answer()).extend(step)


def run_all(engine: Engine) -> dict[int, Answer]:
    """Step until nothing is left to do."""
    answers: dict[int, Answer] = {}
    while engine.busy:
        collect(answers, engine.step())
    return answers


def answer(engine: Engine, request: Request) -> Answer:
    """Run one request alone."""
    number = engine.add(request)
    return run_all(engine)[number]


def greedy(engine: Engine, prompt: Sequence[int], count: int) -> list[int]:
    return answer(engine, Request(tuple(prompt), count)).tokens


def prompt_logits(
    engine: Engine, ids: Sequence[int], chunk: int | None = None, media: Media | None = None
) -> torch.Tensor:
    """Return the logits [T, V] after every token of a prompt, prefilled in chunks, in lane 0."""
    request = Request((*ids, 0), 1, media=media)
    positions = text_positions(len(ids)) if media is None else media.positions
    engine.state.decoder.recurrent.reset(0)
    place = Place(0, torch.arange(engine.settings.pages, dtype=torch.int32)[None])
    step = chunk or len(ids)
    parts = [
        run_chunk(engine.model, engine.state, request, positions, place, b, min(b + step, len(ids)))
        for b in range(0, len(ids), step)
    ]
    return engine.model.score(torch.cat(parts))


def random_prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, 289, (length,), generator=generator).tolist())


def score_gap(got: Answer, want: Answer) -> float:
    """Return the largest difference of log probabilities by the largest of them, tokens and most
    likely tokens alike; infinite where the most likely ones are others."""
    pairs = []
    for mine, theirs in zip(got.scores, want.scores, strict=True):
        pairs.append((mine.logprob, theirs.logprob))
        if [i for i, _ in mine.top] != [i for i, _ in theirs.top]:
            return float("inf")
        pairs += [(a, b) for (_, a), (_, b) in zip(mine.top, theirs.top, strict=True)]
    gaps = torch.tensor(pairs, dtype=torch.float64)
    return float((gaps[:, 0] - gaps[:, 1]).abs().max() / gaps.abs().max())


GREEDY = Sampling()
