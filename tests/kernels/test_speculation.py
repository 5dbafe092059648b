"""Speculation: lossless acceptance (specs/sampling.md SA-12..SA-15, specs/numerics.md N-51)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ninfer_kernels.sampling import (
    DRAFT,
    NOT_FINITE,
    NOT_NARROW,
    SAMPLE,
    Candidates,
    SamplingParameters,
    candidate_probabilities,
    choose_tokens,
    select_candidates,
)
from ninfer_kernels.speculation import Drafts, Verdict, accept_drafts
from ninfer_kernels.speculation.cases import CASES, SpeculationCase, make_inputs, worst_error

SMALL = [case for case in CASES if case.small]
LANES, WIDTH, VOCABULARY = 24000, 3, 20
# 99.99 % of chi-square draws with at most 24 degrees of freedom lie below.
CHI_SQUARE = 59.0


def integers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def lane_parameters(lanes: int, **changes: float) -> SamplingParameters:
    values = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0} | changes
    tensors = {
        name: torch.full((lanes,), value, dtype=torch.int32 if name == "top_k" else torch.float32)
        for name, value in values.items()
    }
    return SamplingParameters(**tensors, seed=torch.arange(lanes) * 0x5DEECE66D)


def chi_square(tokens: torch.Tensor, p: torch.Tensor) -> float:
    counts = torch.bincount(tokens.long(), minlength=len(p)).double()
    assert int(counts[p == 0].sum()) == 0
    expected = p[p > 0].double() * counts.sum()
    return float(((counts[p > 0] - expected) ** 2 / expected).sum())


def target(row: torch.Tensor, parameters: SamplingParameters) -> torch.Tensor:
    """The model's own law for one row, by the filters of test_sampling."""
    limited = parameters.take(torch.tensor([0])).limit(64)
    found = select_candidates(row[None])
    p = candidate_probabilities(found, limited)[0]
    return torch.zeros(len(row)).scatter_add(0, found.ids[0].clamp(min=0).long(), p)


def repeat_candidates(rows: torch.Tensor) -> Candidates:
    """Candidates of the same rows for all lanes, found once and without the empty places."""
    found = select_candidates(rows)
    ids, logits = (x[:, :VOCABULARY].repeat(LANES, 1) for x in (found.ids, found.logits))
    return Candidates(ids, logits, found.log_sum.repeat(LANES), found.flags.repeat(LANES))


def draw_drafts(rows: torch.Tensor, count: int) -> Drafts:
    """Drafts of every lane from a 16-way q, or the likeliest token as a one-hot q."""
    rows = rows[:-1] + 0.7 * rows[:-1].flip(-1)
    number = LANES * len(rows)
    q = replace(lane_parameters(number), seed=torch.arange(number) // len(rows) * 77)
    q = q.limit(16) if count > 1 else replace(q, temperature=torch.zeros(number))
    position = torch.arange(number, dtype=torch.int32) % len(rows)
    found = repeat_candidates(rows)
    logits = rows.repeat(LANES, 1)
    tokens, _ = choose_tokens(logits, q, position, DRAFT, candidates=found, wide=False)
    shape = (LANES, len(rows))
    return Drafts(
        tokens=tokens.view(shape),
        ids=found.ids[:, :count].reshape(*shape, count),
        probabilities=candidate_probabilities(found, q)[:, :count].reshape(*shape, count),
    )


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_kernel_agrees_with_reference(case: SpeculationCase, device: str):
    """N-51, N-4: every field of the verdict, for padded, idle and full lanes."""
    assert worst_error(case, device, 1, "triton") == 0


@pytest.mark.parametrize("count", [1, 16])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"temperature": 0.7, "top_k": 6},
        {"top_p": 0.9, "top_k": 15, "min_p": 0.05, "temperature": 1.3},
    ],
    ids=str,
)
def test_emitted_tokens_follow_the_models_own_law(count: int, changes: dict[str, float]):
    """SA-13, SA-14: chi-square of every place over 24,000 lanes, narrow and wide."""
    generator = torch.Generator().manual_seed(6)
    rows = torch.randn(1, WIDTH, VOCABULARY, generator=generator) * 1.2
    logits = rows.expand(LANES, WIDTH, VOCABULARY).contiguous()
    parameters = lane_parameters(LANES, **changes)
    columns = torch.full((LANES,), WIDTH, dtype=torch.int32)
    drafts = draw_drafts(rows[0], count)
    found = repeat_candidates(rows[0])
    position = torch.zeros(LANES, dtype=torch.int32)
    got = accept_drafts(logits, drafts, parameters, position, columns, candidates=found)
    assert 0.02 < float(got.accepted.float().mean()) < WIDTH - 1.02
    for place in range(WIDTH):
        reached = got.accepted >= place
        law = target(rows[0, place], parameters)
        assert chi_square(got.tokens[reached, place], law) < CHI_SQUARE
    index = torch.arange(WIDTH)
    assert int(got.tokens[index >= got.emitted[:, None]].abs().sum()) == 0
    assert torch.equal(got.emitted, got.accepted + 1)


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_greedy_lanes_accept_exactly_the_greedy_tokens(backend: str, device: str):
    """SA-14: the right drafts stand, the first wrong one is replaced by the argmax."""
    logits = torch.randn(4, 4, 33, generator=torch.Generator().manual_seed(1)).to(device)
    best = logits.argmax(-1).int()
    tokens = best[:, :-1].clone()
    tokens[1, 2] = (tokens[1, 2] + 1) % 33
    tokens[2, 0] = (tokens[2, 0] + 5) % 33
    ones = torch.ones(4, 3, 1, device=device)
    drafts = Drafts(tokens, tokens[..., None].contiguous(), ones)
    parameters = lane_parameters(4, temperature=0.0)
    parameters = SamplingParameters(*(x.to(device) for x in vars(parameters).values()))
    position, columns = integers(0, 1, 2, 3).to(device), integers(4, 4, 4, 2).to(device)
    got = accept_drafts(logits, drafts, parameters, position, columns, wide=False, backend=backend)
    assert got.accepted.tolist() == [3, 2, 0, 1]
    for lane, emitted in enumerate(got.emitted.tolist()):
        assert torch.equal(got.tokens[lane, :emitted], best[lane, :emitted])
        assert int(got.tokens[lane, emitted:].abs().sum()) == 0


def test_a_lane_without_drafts_draws_the_token_of_plain_sampling():
    """SA-14, SA-7: width 1, and width 3 with one real column."""
    logits = torch.randn(6, 3, 90, generator=torch.Generator().manual_seed(1))
    parameters = lane_parameters(6, top_k=30)
    parameters.top_k[3] = 0
    position = integers(3, 4, 5, 6, 7, 8)
    want, _ = choose_tokens(logits[:, 0].contiguous(), parameters, position, SAMPLE)
    one = accept_drafts(logits[:, :1].contiguous(), None, parameters, position, integers(*[1] * 6))
    assert torch.equal(one.tokens[:, 0], want)
    drafts = make_inputs(SpeculationCase(6, 3, 90, 4), "cpu", 0).drafts
    three = accept_drafts(logits, drafts, parameters, position, integers(*[1] * 6))
    assert torch.equal(three.tokens[:, 0], want)
    assert int(three.tokens[:, 1:].abs().sum()) == 0


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_a_lane_is_decided_alone(backend: str, device: str):
    """SA-15, N-5: NaN in padded columns and idle lanes reaches nothing; flags stay at home."""
    case = SpeculationCase(5, 4, 60, 4)
    inputs = make_inputs(case, device, 9)
    inputs.columns.copy_(integers(4, 0, 2, 3, 4))
    parameters = lane_parameters(5, top_k=20)
    parameters.top_k[4] = 0
    parameters = SamplingParameters(*(x.to(device) for x in vars(parameters).values()))
    inputs.logits[1], inputs.logits[2, 2:] = float("nan"), float("nan")
    inputs.logits[3, 1, 7] = float("nan")
    slots, committed = integers(2, -(10**6), 0, 1, 4).to(device), integers(*[9] * 6).to(device)

    def run(lanes: torch.Tensor) -> Verdict:
        drafts = Drafts(*(x[lanes].contiguous() for x in vars(inputs.drafts).values()))
        return accept_drafts(
            inputs.logits[lanes].contiguous(),
            drafts,
            parameters.take(lanes),
            inputs.position[lanes],
            inputs.columns[lanes],
            wide=False,
            slots=slots[lanes],
            committed=committed,
            backend=backend,
        )

    whole = run(torch.arange(5))
    assert whole.flags.tolist() == [0, 0, 0, NOT_FINITE, NOT_NARROW]
    assert whole.emitted[[1, 3, 4]].tolist() == [0, 0, 0]
    assert committed.tolist() == [int(whole.emitted[2]), 0, int(whole.emitted[0]), 9, 0, 9]
    for lane in range(5):
        alone = run(torch.tensor([lane]))
        for field in ("accepted", "tokens", "emitted", "flags"):
            assert torch.equal(getattr(alone, field)[0], getattr(whole, field)[lane])


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_wide_lanes_do_not_change_narrow_ones(backend: str, device: str):
    """SA-9: narrow lanes get one verdict beside a wide lane, which all backends judge alike."""
    inputs = make_inputs(SpeculationCase(3, 3, 200, 8), device, 2)
    inputs.columns.fill_(3)
    narrow, mixed = (
        SamplingParameters(*(x.to(device) for x in vars(parameters).values()))
        for parameters in (lane_parameters(3, top_k=40), lane_parameters(3, top_k=40))
    )
    mixed.top_k[1] = 0
    arguments = (inputs.logits, inputs.drafts)
    rest = (inputs.position, inputs.columns)
    first = accept_drafts(*arguments, narrow, *rest, wide=False)
    second = accept_drafts(*arguments, mixed, *rest, backend=backend)
    plain = accept_drafts(*arguments, mixed, *rest, backend="reference")
    assert torch.equal(first.tokens[[0, 2]], second.tokens[[0, 2]])
    assert torch.equal(plain.tokens, second.tokens)
    assert torch.equal(plain.accepted, second.accepted)
    assert int(second.flags.sum()) == 0


def test_wrong_arguments_are_refused():
    inputs = make_inputs(SpeculationCase(2, 3, 9, 2), "cpu", 0)
    parameters, columns = lane_parameters(2), inputs.columns
    with pytest.raises(ValueError, match=r"drafts: got None, want tokens int32 \(2, 2\)"):
        accept_drafts(inputs.logits, None, parameters, inputs.position, columns)
    with pytest.raises(ValueError, match="columns: got"):
        accept_drafts(inputs.logits, inputs.drafts, parameters, inputs.position, columns[:1])
    with pytest.raises(ValueError, match="commit: got one of slots and committed"):
        accept_drafts(
            inputs.logits, inputs.drafts, parameters, inputs.position, columns, slots=columns
        )
