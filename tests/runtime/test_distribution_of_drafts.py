"""Up to seven drafts and every filter leave the model's own distribution: 20,000 draws at once.

After one prompt the first token decides everything that follows from it: the drafts, and the logits
of the next round. So the model runs once for every first token; rounds of 20,000 lanes then draw,
accept, reject and penalise with what it gave.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from builders.engines import make_engine, prompt_logits
from ninfer_runtime.engine import round as rounds
from ninfer_runtime.engine.lane_writer import activate
from ninfer_runtime.engine.lanes import allocate_lanes
from ninfer_runtime.engine.prefill import Place, run_chunk, text_positions
from ninfer_runtime.engine.request import Request, Sampling
from ninfer_runtime.engine.sequence import Sequence
from ninfer_runtime.models.qwen3_5.model import DecoderState, ModelState
from ninfer_runtime.state.recurrent import RecurrentState
from runtime.test_distribution import chi_square_limit, pool_rare

VOCABULARY, DRAWS = 8, 20_000
PROMPT = (3, 1, 4, 1, 5, 2, 6, 5, 3, 5, 0, 7)
SAMPLINGS = {
    "all": Sampling(temperature=4.0),
    "top-k": Sampling(temperature=4.0, top_k=6),
    "top-p": Sampling(temperature=4.0, top_p=0.87),
    "penalties": Sampling(
        temperature=3.0, repetition=1.4, presence=2.0, frequency=1.5, bias={2: 3.0, 5: -2.0}
    ),
    "everything": Sampling(
        temperature=3.0, top_k=7, top_p=0.95, min_p=0.02, repetition=1.2, presence=1.0,
        bias={1: 2.0},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Tree:
    """What the model gave: hidden states of the last prompt token [H] and, for every first token,
    its drafts [V, k] and the hidden states of it and them [V, k + 1, H]."""

    root: torch.Tensor
    drafts: torch.Tensor
    leaves: torch.Tensor


def grow(engine, patch):
    """Run one round that gives lane t the first token t, and the round after it."""
    seen, run = [], rounds.run_decoder

    def record(*arguments, **options):
        seen.append(run(*arguments, **options).clone())
        return seen[-1]

    state, table = engine.state, engine.table
    for lane in range(VOCABULARY):
        request = Request(PROMPT, 40)
        place = Place(lane, torch.tensor([[lane]], dtype=torch.int32))
        positions, last = text_positions(len(PROMPT)), len(PROMPT) - 1
        run_chunk(engine.model, state, request, positions, place, 0, last)
        activate(table, Sequence(lane, request, 40, lane=lane, table=place.pages,
                                 positions=positions))  # fmt: skip
        table.mask[lane] = 1 << lane
    with patch.context() as inside:
        inside.setattr(rounds, "run_decoder", record)
        rounds.run_round(engine.model, state, table, rounds.RoundKind(masked=True))
        assert table.tokens[:, 0].tolist() == list(range(VOCABULARY))
        drafts = table.tokens[:, 1:].clone()
        table.mask.fill_(-1)
        table.counts.fill_(table.width)
        rounds.run_round(engine.model, state, table, rounds.RoundKind())
    width = table.width
    root, leaves = seen[0].view(VOCABULARY, width, -1)[0, 0], seen[1].view(VOCABULARY, width, -1)
    return Tree(root, drafts, leaves)


@pytest.fixture(scope="module")
def planted(artifact):
    """Engines whose output head has eight rows, and their trees, by number of drafts."""
    found = {}

    def get(drafts):
        if drafts not in found:
            engine = make_engine(
                artifact("shallow"), max_context=64, lanes=VOCABULARY, speculator="mtp",
                draft_tokens=drafts,
            )  # fmt: skip
            text = engine.model.text
            head = text.head.cut_rows(0, VOCABULARY)
            engine.model = replace(engine.model, text=replace(text, head=head))
            engine.table = allocate_lanes(engine.settings, VOCABULARY)
            found[drafts] = (engine, grow(engine, pytest.MonkeyPatch))
        return found[drafts]

    return get


def draw(engine, tree, sampling, patch):
    """Return the first two tokens of 20,000 lanes, int64 [2, DRAWS], and how many second ones
    were drafts."""
    settings = replace(engine.settings, lanes=DRAWS, pages=1)
    table = allocate_lanes(settings, VOCABULARY)
    request = Request(PROMPT, 40, sampling)
    activate(table, Sequence(0, request, 40, lane=0, table=torch.zeros(1, 1, dtype=torch.int32),
                             positions=text_positions(len(PROMPT))))  # fmt: skip
    for plane in table.planes:
        plane[1:] = plane[:1]
    table.sampling.seed.copy_(torch.arange(DRAWS))
    none = torch.zeros(DRAWS, dtype=torch.int32)
    recurrent = RecurrentState((), none.clone(), none.clone())
    state = ModelState(DecoderState((), recurrent), engine.state.mtp)

    def decode(*_):
        if int(table.counts[0]) == 1:
            return tree.root.expand(DRAWS * table.width, -1)
        return tree.leaves[table.tokens[:, 0].long()].flatten(0, 1)

    def draft(*_):
        table.tokens[:, 1:] = tree.drafts[table.tokens[:, 0].long()]

    patch.setattr(rounds, "run_decoder", decode)
    patch.setattr(rounds, "_draft", draft)
    kind = rounds.RoundKind(wide=sampling.wide, penalised=sampling.penalised)
    first = rounds.run_round(engine.model, state, table, kind)
    assert bool((first.emitted == 1).all()) and bool((table.counts == table.width).all())
    second = rounds.run_round(engine.model, state, table, kind)
    tokens = torch.stack((first.tokens[:, 0], second.tokens[:, 0])).long()
    return tokens, int((second.emitted > 1).sum())


def law(logits, sampling, generated):
    """Return the probabilities [V] of SA-1 to SA-6 in float64, token by token."""
    z = logits.double().tolist()
    for t in range(VOCABULARY):
        count = generated.count(t)
        if t in PROMPT or count:
            z[t] = z[t] / sampling.repetition if z[t] > 0 else z[t] * sampling.repetition
        z[t] -= sampling.frequency * count + sampling.presence * (count > 0)
        z[t] += sampling.bias.get(t, 0.0)
    p = (torch.tensor(z, dtype=torch.float64) / sampling.temperature).softmax(0).tolist()
    order = sorted(range(VOCABULARY), key=lambda t: -p[t])[: sampling.top_k or VOCABULARY]
    total, before, kept = sum(p[t] for t in order), 0.0, []
    for t in order:
        if not kept or (before < sampling.top_p and p[t] >= sampling.min_p * p[order[0]]):
            kept.append(t)
        before += p[t] / total
    out = torch.zeros(VOCABULARY, dtype=torch.float64)
    for t in kept:
        out[t] = p[t]
    return out / out.sum()


def expect(engine, sampling):
    """Return the probabilities [V, V] of the first two tokens, from full forward passes."""
    rows = [prompt_logits(engine, (*PROMPT, token))[-2:] for token in range(VOCABULARY)]
    second = torch.stack([law(row[1], sampling, [t]) for t, row in enumerate(rows)])
    return law(rows[0][0], sampling, [])[:, None] * second


@pytest.mark.parametrize(
    ("drafts", "name"),
    [
        *((drafts, "all") for drafts in (1, 3, 7)),
        (1, "penalties"), (3, "top-p"), (3, "everything"), (7, "top-k"),
    ],
)  # fmt: skip
def test_two_tokens_have_the_models_distribution_with_any_drafts(
    planted, monkeypatch, drafts, name
):
    """N-67, SA-14: 20,000 draws."""
    engine, tree = planted(drafts)
    sampling = SAMPLINGS[name]
    want = expect(engine, sampling).flatten() * DRAWS
    tokens, stood = draw(engine, tree, sampling, monkeypatch)
    assert 0.02 * DRAWS < stood < 0.98 * DRAWS, "drafts must stand and fall"
    counts = torch.bincount(tokens[0] * VOCABULARY + tokens[1], minlength=VOCABULARY**2)
    possible = want > 0
    assert int(counts[~possible].sum()) == 0
    got, want = pool_rare(counts[possible].double(), want[possible])
    assert len(got) > 15
    assert ((got - want) ** 2 / want).sum() < chi_square_limit(len(got) - 1)
