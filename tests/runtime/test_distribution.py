"""Sampling with drafts draws from the model's own distribution: accepting and rejecting loses
nothing.

Many copies of one prefix are lanes of one round, each with a seed of its own.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import pytest
import torch

from builders.engines import make_engine, prompt_logits, random_prompt
from ninfer_runtime.engine.lane_writer import activate
from ninfer_runtime.engine.lanes import allocate_lanes
from ninfer_runtime.engine.prefill import Place, run_chunk, text_positions
from ninfer_runtime.engine.request import Request, Sampling
from ninfer_runtime.engine.round import RoundKind, run_round
from ninfer_runtime.engine.sequence import Sequence
from ninfer_runtime.models.qwen3_5.model import allocate_state

VOCABULARY = 8
LANES = 1000
PROMPT = random_prompt(12, seed=31)
CPU = torch.device("cpu")


class Crowd:
    """LANES copies of one prefilled prompt, a page each, that can be drawn from again."""

    def __init__(self, artifact, sampling, **options):
        engine = make_engine(artifact, max_context=64, **options)
        text = engine.model.text
        head = text.head.cut_rows(0, VOCABULARY)
        self.model = engine.model = replace(engine.model, text=replace(text, head=head))
        self.engine, self.sampling = engine, sampling
        settings = replace(engine.settings, lanes=LANES, pages=LANES)
        self.state = allocate_state(engine.geometry, settings, LANES)
        self.table = allocate_lanes(settings, VOCABULARY)
        self._fill()
        self._saved = [plane.clone() for plane in self._planes()]

    def _planes(self):
        return [*self.state.decoder.recurrent.planes, *self.table.planes]

    def _fill(self):
        request = Request(PROMPT, 50, self.sampling)
        positions = text_positions(len(PROMPT))
        place = Place(0, torch.zeros(1, 1, dtype=torch.int32))
        run_chunk(self.model, self.state, request, positions, place, 0, len(PROMPT) - 1)
        sequence = Sequence(0, request, 50, lane=0, table=place.pages, positions=positions)
        activate(self.table, sequence)
        pages = [plane for cache in self.state.caches for plane in cache.planes]
        for plane in (*self._planes(), *pages):
            plane[1:] = plane[:1]
        self.table.pages[:, 0] = torch.arange(LANES)

    def draw(self, round_number):
        """Start over from the prompt, whose keys and values nothing overwrites; return the first
        two tokens of every lane, int64 [LANES, 2], and how many second ones were drafts."""
        for plane, saved in zip(self._planes(), self._saved, strict=True):
            plane.copy_(saved)
        self.table.sampling.seed.copy_(torch.arange(LANES) + LANES * round_number)
        kind = RoundKind(wide=self.sampling.wide)
        first = run_round(self.model, self.state, self.table, kind)
        assert bool((first.emitted == 1).all())
        second = run_round(self.model, self.state, self.table, kind)
        tokens = torch.stack((first.tokens[:, 0], second.tokens[:, 0]), 1).long()
        return tokens, int((second.emitted > 1).sum())

    def expected(self):
        """Return the probabilities [V, V] of the first two tokens, from full forward passes."""
        temperature = self.sampling.temperature
        rows = [
            prompt_logits(self.engine, (*PROMPT, token))[-2:].double() / temperature
            for token in range(VOCABULARY)
        ]
        return rows[0][0].softmax(-1)[:, None] * torch.stack([r[1] for r in rows]).softmax(-1)


def chi_square_limit(freedom, probability=1e-3):
    """Return what a chi-square exceeds with `probability` (Wilson and Hilferty)."""
    z = NormalDist().inv_cdf(1 - probability)
    a = 2 / (9 * freedom)
    return freedom * (1 - a + z * a**0.5) ** 3


def pool_rare(counts, expected, least=5.0):
    """Return counts and expectations with all cells that expect fewer than `least` as one."""
    rare = expected < least
    parts = [(counts[~rare], expected[~rare])]
    if rare.any():
        parts.append((counts[rare].sum()[None], expected[rare].sum()[None]))
    return (torch.cat(column) for column in zip(*parts, strict=True))


@pytest.mark.parametrize(
    ("drafts", "sampling", "repeats"),
    [
        (0, Sampling(temperature=4.0), 5),
        (1, Sampling(temperature=4.0), 20),
        (2, Sampling(temperature=4.0, top_k=64), 5),
    ],
    ids=["no drafts", "one draft", "two drafts, narrow"],
)
def test_two_drawn_tokens_have_the_models_distribution(artifact, drafts, sampling, repeats):
    """N-67: 20,000 draws with drafts."""
    options = {"speculator": "mtp", "draft_tokens": drafts} if drafts else {}
    crowd = Crowd(artifact("shallow"), sampling, **options)
    counts, stood = torch.zeros(VOCABULARY**2), 0
    for number in range(repeats):
        tokens, accepted = crowd.draw(number)
        counts += torch.bincount(tokens[:, 0] * VOCABULARY + tokens[:, 1], minlength=64)
        stood += accepted
    draws = LANES * repeats
    assert counts.sum() == draws
    if drafts:
        assert 0.05 * draws < stood < 0.95 * draws, "drafts must stand and fall"
    got, want = pool_rare(counts.double(), crowd.expected().flatten() * draws)
    assert len(got) > 20
    statistic = ((got - want) ** 2 / want).sum()
    assert statistic < chi_square_limit(len(got) - 1)
