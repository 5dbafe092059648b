"""Sampling: random numbers, filters, draws, penalties (specs/sampling.md SA-1..SA-11)."""

from __future__ import annotations

import pytest
import torch

from ninfer_kernels.sampling import (
    DRAFT,
    NOT_FINITE,
    NOT_NARROW,
    SAMPLE,
    Candidates,
    Penalties,
    SamplingParameters,
    apply_penalties,
    candidate_probabilities,
    choose_tokens,
    record_tokens,
    select_candidates,
    token_logprobs,
)
from ninfer_kernels.sampling.cases import CASES, SamplingCase, make_parameters, worst_error
from ninfer_kernels.sampling.philox import exponential_noise, philox, vocabulary_noise

SMALL = [case for case in CASES if case.small]
# 99.99 % of chi-square draws lie below, by degrees of freedom.
CHI_SQUARE = {3: 21.1, 4: 23.5, 7: 29.9, 11: 37.4}


def integers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def same_for_all(rows: int, **changes: float) -> SamplingParameters:
    values = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 11} | changes
    types = {"top_k": torch.int32, "seed": torch.int64}
    return SamplingParameters(
        **{k: torch.full((rows,), v, dtype=types.get(k, torch.float32)) for k, v in values.items()}
    )


def on(device: str, parameters: SamplingParameters) -> SamplingParameters:
    return SamplingParameters(*(x.to(device) for x in vars(parameters).values()))


def filter_exactly(row: torch.Tensor, parameters: SamplingParameters, index: int) -> torch.Tensor:
    """float64 probabilities [V] of SA-4..SA-6, token by token."""
    z = row.double()
    order = sorted(range(len(z)), key=lambda token: (-float(z[token]), token))
    temperature, k = float(parameters.temperature[index]), int(parameters.top_k[index])
    p, m = float(parameters.top_p[index]), float(parameters.min_p[index])
    if temperature == 0:
        return torch.nn.functional.one_hot(torch.tensor(order[0]), len(z)).double()
    weight = [float(torch.exp((z[token] - z[order[0]]) / temperature)) for token in order]
    limited = weight[:k] if k >= 1 else weight
    result, before = torch.zeros(len(z), dtype=torch.float64), 0.0
    for place, (token, w) in enumerate(zip(order, limited, strict=False)):
        if place == 0 or ((p >= 1 or before < p * sum(limited)) and w >= m):
            result[token] = w
        before += w
    return result / result.sum()


def chi_square(counts: torch.Tensor, p: torch.Tensor) -> float:
    """Statistic of counts [V] against p [V]; tokens of p = 0 must not occur."""
    assert int(counts[p == 0].sum()) == 0
    expected = p[p > 0] * counts.sum()
    return float(((counts[p > 0] - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_kernels_agree_with_reference(case: SamplingCase, device: str):
    """N-4, N-47..N-50: candidates, flags, probabilities, tokens, penalties; nothing unwritten."""
    assert worst_error(case, device, 1, "triton") <= 1


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF, 0xFFFFFFFF),
            (0xFFFFFFFF,) * 4,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0xA4093822, 0x299F31D0),
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(
    key: tuple[int, int], counter: tuple[int, ...], words: tuple[int, ...]
):
    """SA-8, N-47: the known answers of the Random123 distribution."""
    seed = int.from_bytes(
        b"".join(word.to_bytes(4, "little") for word in key), "little", signed=True
    )
    got = philox(torch.tensor([seed]), tuple(torch.tensor([word]) for word in counter))  # type: ignore[arg-type]
    assert tuple(int(word) for word in got) == words


def test_noise_is_exponential_and_keyed_by_every_part():
    """SA-8, N-48: against float64 from the same words; other keys, other numbers."""
    ids = torch.arange(40000)
    noise = exponential_noise(torch.tensor([5]), integers(9), SAMPLE, ids)
    zero = torch.zeros_like(ids)
    words = torch.stack(philox(torch.tensor([5]) + zero, (ids >> 2, zero + 9, zero, zero)))
    word = words.gather(0, (ids & 3)[None])[0].double()
    exact = -torch.log1p(-((word.float() + 0.5) * 2.0**-32).double().clamp(max=1 - 2.0**-24))
    assert float(((noise - exact).abs() / exact).max()) < 2.0**-18
    assert abs(float(noise.mean()) - 1) < 0.03
    for seed, position, purpose in ((6, 9, 0), (5 + (1 << 32), 9, 0), (5, 10, 0), (5, 9, DRAFT)):
        other = exponential_noise(torch.tensor([seed]), integers(position), purpose, ids)
        assert int((other == noise).sum()) < 3
    whole = vocabulary_noise(torch.tensor([[5]]), integers(9)[:, None], SAMPLE, 39999)
    assert torch.equal(whole[0], noise[:39999])


@pytest.mark.parametrize("wide", [False, True])
def test_probabilities_follow_the_filters(wide: bool):
    """SA-4..SA-6: temperature, top-k, top-p, min-p in order, against float64 within N-49."""
    logits = (torch.randn(40, 50, generator=torch.Generator().manual_seed(1)) * 2).round() / 2
    parameters = make_parameters(40, "cpu", 0, wide)
    limited = parameters.limit(64)
    got = candidate_probabilities(select_candidates(logits), limited)
    ids = select_candidates(logits).ids
    for row in range(40):
        exact = filter_exactly(logits[row], limited, row)
        dense = torch.zeros(50).scatter_add(0, ids[row].clamp(min=0).long(), got[row])
        torch.testing.assert_close(dense.double(), exact, rtol=64 * 2**-24, atol=2**-32)


@pytest.mark.parametrize(
    ("changes", "freedom"),
    [
        ({"top_k": 5, "temperature": 0.8}, 4),
        ({}, 11),
        ({"top_p": 0.9}, None),
        ({"min_p": 0.05, "temperature": 1.5}, None),
    ],
)
def test_draws_follow_the_probabilities(changes: dict[str, float], freedom: int | None):
    """SA-7: chi-square over 20,000 positions."""
    draws = 20000
    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(4)) * 1.5
    parameters = same_for_all(draws, **changes)
    position = torch.arange(draws, dtype=torch.int32)
    found = select_candidates(logits)
    found = Candidates(*(x.repeat_interleave(draws, 0) for x in vars(found).values()))
    rows = logits.expand(draws, 12)
    tokens, flags = choose_tokens(rows, parameters, position, SAMPLE, candidates=found)
    exact = filter_exactly(logits[0], parameters, 0)
    kept = int((exact > 0).sum()) - 1
    assert freedom is None or kept == freedom
    limit = CHI_SQUARE[min(x for x in CHI_SQUARE if x >= kept)]
    assert chi_square(torch.bincount(tokens, minlength=12).double(), exact) < limit
    assert int(flags.sum()) == 0


def test_a_row_is_decided_alone_and_either_way(device: str):
    """SA-9, N-5: same token among others, in another order, narrow or from the whole row."""
    logits = torch.randn(12, 700, generator=torch.Generator().manual_seed(2)) * 3
    narrow = make_parameters(12, "cpu", 3)
    position = torch.arange(12, dtype=torch.int32) * 5
    tokens, _ = choose_tokens(logits, narrow, position, SAMPLE, wide=False)
    both, _ = choose_tokens(logits, narrow, position, SAMPLE, wide=True)
    assert torch.equal(tokens, both)
    mixed = make_parameters(12, "cpu", 3, wide=True)
    all_rows, _ = choose_tokens(logits, mixed, position, SAMPLE)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    five = (logits[:5].to(device), on(device, mixed.take(torch.arange(5))), position[:5].to(device))
    kernels, _ = choose_tokens(*five, SAMPLE, backend="triton")
    assert kernels.tolist() == all_rows[:5].tolist()
    shuffled, _ = choose_tokens(logits[order], mixed.take(order), position[order], SAMPLE)
    assert torch.equal(shuffled, all_rows[order])
    for row in range(12):
        pick = torch.tensor([row])
        lone, _ = choose_tokens(logits[pick], mixed.take(pick), position[pick], SAMPLE)
        assert int(lone) == int(all_rows[row])
    # A limit of 64 that drops nothing but what top-k 64 drops is the same law as 699 of 700.
    few = same_for_all(12, top_k=64)
    head = torch.full_like(logits, float("-inf")).scatter(
        1, logits.topk(64).indices, logits.topk(64).values
    )
    wide = same_for_all(12, top_k=699)
    assert torch.equal(
        choose_tokens(logits, few, position, SAMPLE)[0],
        choose_tokens(head, wide, position, SAMPLE)[0],
    )


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_greedy_takes_the_first_of_equal_logits(backend: str, device: str):
    """SA-4, SA-5, N-6: lower id first; -0 equals 0; filters do not matter."""
    logits = torch.full((3, 90), -5.0, device=device)
    logits[0, [70, 8, 33]] = 2.5
    logits[1] = -0.0
    logits[1, 60:] = 0.0
    logits[2, 89] = 1e-30
    parameters = same_for_all(3, temperature=0.0, min_p=1.0, top_p=0.0, top_k=0)
    parameters = on(device, parameters)
    position = integers(0, 0, 0).to(device)
    tokens, _ = choose_tokens(logits, parameters, position, SAMPLE, wide=False, backend=backend)
    assert tokens.tolist() == [8, 0, 89]
    best = select_candidates(logits, 2, backend=backend)
    assert best.ids[:, :3].tolist() == [[8, 33, -1], [0, 1, -1], [89, 0, -1]]


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_broken_rows_are_flagged_and_never_sampled(backend: str, device: str):
    """SA-11, N-5: NaN, +inf, nothing but -inf; the rows beside them do not notice."""
    logits = torch.randn(5, 80, generator=torch.Generator().manual_seed(7)).to(device)
    clean = logits.clone()
    logits[0, 79], logits[1, 3], logits[2] = float("nan"), float("inf"), float("-inf")
    logits[3, 5:] = clean[3, 5:] = float("-inf")
    parameters = same_for_all(5, top_k=10)
    parameters.top_k[4] = 65
    parameters = on(device, parameters)
    position = integers(0, 1, 2, 3, 4).to(device)
    arguments = (parameters, position, SAMPLE)
    tokens, flags = choose_tokens(logits, *arguments, wide=False, backend=backend)
    want, _ = choose_tokens(clean, *arguments, wide=False, backend=backend)
    assert flags.tolist() == [NOT_FINITE, NOT_FINITE, NOT_FINITE, 0, NOT_NARROW]
    assert tokens[[0, 1, 2, 4]].tolist() == [0, 0, 0, 0]
    assert int(tokens[3]) == int(want[3]) < 5


def test_log_probabilities_are_those_of_the_plain_softmax():
    """SA-10, N-50: at temperature 1, whatever the row is sampled with."""
    logits = torch.randn(4, 300, generator=torch.Generator().manual_seed(7)) * 5
    exact = torch.log_softmax(logits.double(), 1)
    tokens = integers(5, 299, 0, 17)
    chosen, ids, values = token_logprobs(logits, tokens, select_candidates(logits), 20)
    assert torch.equal(ids.long(), exact.topk(20).indices)
    torch.testing.assert_close(values.double(), exact.topk(20).values, rtol=1e-6, atol=1e-6)
    want = exact.gather(1, tokens.long()[:, None])[:, 0]
    torch.testing.assert_close(chosen.double(), want, rtol=1e-6, atol=1e-6)


def test_penalties_have_their_order():
    """SA-1..SA-3: worked by hand; history by lane, drafts by row."""
    logits = torch.tensor([[2.0, -2.0, 1.0, 0.5, 3.0]]).repeat(2, 1)
    penalties = Penalties(*(torch.tensor([9.0, x]) for x in (2.0, 0.25, 0.5)))
    counts = torch.zeros(2, 5, dtype=torch.int32)
    record_tokens(counts, integers(1), integers(0, 0, 1, 4)[None], integers(3))
    assert counts.tolist() == [[0] * 5, [2, 1, 0, 0, 0]]
    got = apply_penalties(
        logits,
        integers(1, 1),
        penalties,
        counts,
        prompt=torch.tensor([[1] * 5, [0, 0, 1, 0, 0]], dtype=torch.uint8),
        drafts=integers(-1, -1, 3, -1).view(2, 2),
        bias_ids=integers(-1, -1, 2, 4).view(2, 2),
        bias_values=torch.tensor([[7.0, 7.0], [10.0, 1.0]]),
        mask=integers(0b01111, 0b11111)[:, None],
    )
    # Token 0: 2 / 2 - 2 * 0.5 - 0.25; token 1: -2 * 2 - 0.5 - 0.25; token 2: 1 / 2 + 10.
    first = [-0.25, -4.75, 10.5, 0.5, float("-inf")]
    second = [-0.25, -4.75, 10.5, 0.5 / 2 - 0.5 - 0.25, 4.0]
    assert got.tolist() == [first, second]


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_counts_gain_emitted_tokens_only(backend: str, device: str):
    """SA-2: repeated tokens count each time, tokens past the emitted ones do not."""
    counts = torch.zeros(3, 6, dtype=torch.int32, device=device)
    tokens = integers(5, 5, 1, 2, 3, 4).view(2, 3).to(device)
    record_tokens(
        counts, integers(2, 0).to(device), tokens, integers(3, 0).to(device), backend=backend
    )
    assert counts.tolist() == [[0] * 6, [0] * 6, [0, 1, 0, 0, 0, 2]]


def test_wrong_arguments_are_refused():
    logits, parameters = torch.zeros(2, 9), same_for_all(2)
    with pytest.raises(ValueError, match=r"seed: got torch.int32 \(2,\), want torch.int64"):
        broken = SamplingParameters(**{**vars(parameters), "seed": integers(1, 2)})
        choose_tokens(logits, broken, integers(0, 0), SAMPLE)
    with pytest.raises(ValueError, match=r"position: got torch.int32 \(3,\)"):
        choose_tokens(logits, parameters, integers(0, 0, 0), SAMPLE)
    with pytest.raises(ValueError, match=r"logits: got torch\.int64"):
        select_candidates(logits.long())
    with pytest.raises(ValueError, match="count: got 65, want 1 to 64"):
        select_candidates(logits, 65)
    with pytest.raises(ValueError, match=r"mask: got torch.int32 \(2, 2\) on cpu, want"):
        neutral = Penalties(*(torch.zeros(1) for _ in range(3)))
        counts = torch.zeros(1, 9, dtype=torch.int32)
        mask = torch.zeros(2, 2, dtype=torch.int32)
        apply_penalties(logits, integers(0, 0), neutral, counts, mask=mask)
