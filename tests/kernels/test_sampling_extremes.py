"""Sampling at the edges of its parameters and of float32 (specs/sampling.md SA-2 to SA-11)."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from ninfer_kernels.sampling import (
    NOT_FINITE,
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
from ninfer_kernels.sampling.reference import kept_weights, order_keys

INF = float("inf")
VOCABULARIES = (1, 2, 3, 63, 64, 65, 131)
TEMPERATURES = (0.0, 1e-45, 1e-30, 1e-4, 0.7, 1.0, 50.0, 1e30, INF)
TOP_K = (-5, 0, 1, 2, 64, 65, 130, 131, 132, 2**31 - 1)
TOP_P = (0.0, 1e-7, 0.5, 0.93, 1.0, 7.0)
MIN_P = (-1.0, 0.0, 1e-6, 0.3, 1.0, 3.0)


def extreme_rows(vocabulary: int) -> torch.Tensor:
    """Rows [6, V]: ordinary, rounded to ties, all equal, one finite, huge, tiny differences."""
    generator = torch.Generator().manual_seed(vocabulary)
    rows = torch.randn(6, vocabulary, generator=generator) * 3
    rows[1] = rows[1].round()
    rows[2] = -0.0
    rows[3, 1:] = -INF
    rows[4] *= 1e37
    rows[4, ::3] = -INF
    rows[4, vocabulary // 2] = 1e37
    rows[5] = 1 + rows[5] * 2.0**-22
    return rows


def every_setting(count: int, seed: int) -> list[tuple[float, int, float, float]]:
    every = list(itertools.product(TEMPERATURES, TOP_K, TOP_P, MIN_P))
    pick = torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))
    return [every[int(i)] for i in pick[:count]]


def parameters_of(settings: list[tuple[float, int, float, float]]) -> SamplingParameters:
    temperature, top_k, top_p, min_p = zip(*settings, strict=True)
    return SamplingParameters(
        torch.tensor(temperature), torch.tensor(top_k, dtype=torch.int32), torch.tensor(top_p),
        torch.tensor(min_p), torch.arange(len(settings)) * 0x9E3779B97F4A7C1,
    )  # fmt: skip


def define(row: torch.Tensor, parameters: SamplingParameters, index: int, slack: float):
    """Weights by token in float64, straight from SA-4 to SA-6; `slack` widens or narrows edges."""
    temperature, k, p, m, _ = (x[index].item() for x in vars(parameters).values())
    z = row.tolist()
    order = sorted(range(len(z)), key=lambda token: (-z[token], token))
    if temperature == 0:
        return {order[0]: 1.0}
    t = min(max(temperature, 2.0**-126), 2.0**127)
    weight = {token: math.exp((z[token] - z[order[0]]) / t) for token in order}
    limited = order[: int(k)] if k >= 1 else order
    total, before, kept = math.fsum(weight[x] for x in limited), 0.0, {}
    for place, token in enumerate(limited):
        w = weight[token]
        if place == 0 or ((p >= 1 or before < p * total * (1 + slack)) and w >= m * (1 - slack)):
            kept[token] = w
        before += w
    return {token: w for token, w in kept.items() if w > 0}


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_rows_keep_what_the_definition_keeps(vocabulary: int, device: str):
    """SA-4 to SA-7, SA-9, N-49: any top-k, top-p, min-p and temperature, alone and together."""
    settings = every_setting(60, vocabulary)
    parameters = parameters_of(settings)
    position = torch.arange(len(settings), dtype=torch.int32)
    unsure = 0
    for row in extreme_rows(vocabulary):
        ids = order_keys(row[None]).sort(descending=True).indices[0]
        rows = row.expand(len(settings), vocabulary).contiguous()
        weights = kept_weights(rows[:, ids], parameters)
        tokens, flags = choose_tokens(rows, parameters, position, SAMPLE)
        assert flags.tolist() == [0] * len(settings)
        for index in range(len(settings)):
            want, more = (define(row, parameters, index, slack) for slack in (-1e-5, 1e-5))
            assert int(tokens[index]) in more
            if want.keys() != more.keys():
                unsure += 1
                continue
            got = dict(zip(ids.tolist(), weights[index].tolist(), strict=True))
            for token, w in got.items():
                exact = want.get(token, 0.0)
                # A weight far below the first is exp of a rounded argument.
                error = 64 * 2.0**-24 * (1 + abs(math.log(exact))) if exact else 0.0
                assert abs(w - exact) <= error * exact + 2.0**-126, (settings[index], token)
        if vocabulary == 65:
            compare_kernels(rows[:6], parameters.take(position[:6].long()), position[:6], device)
    assert unsure < 60


def compare_kernels(
    rows: torch.Tensor, parameters: SamplingParameters, position: torch.Tensor, device: str
) -> None:
    """SA-9, N-47: kernels and torch agree on candidates, probabilities and tokens."""
    want = select_candidates(rows)
    rows, position = rows.to(device), position.to(device)
    parameters = SamplingParameters(*(x.to(device) for x in vars(parameters).values()))
    got = select_candidates(rows, backend="triton")
    assert torch.equal(got.ids.cpu(), want.ids)
    assert torch.equal(got.logits.cpu(), want.logits)
    p = candidate_probabilities(got, parameters, backend="triton").cpu()
    q = candidate_probabilities(got, parameters, backend="reference").cpu()
    assert torch.isfinite(p).all()
    torch.testing.assert_close(p, q, rtol=1e-4, atol=2.0**-40)
    results = [
        choose_tokens(rows, parameters, position, SAMPLE, candidates=got, backend=backend)[0]
        for backend in ("triton", "reference")
    ]
    assert torch.equal(*results)


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_candidates_of_broken_rows_are_those_of_their_finite_logits(backend: str, device: str):
    """SA-11, N-47: NaN and +inf count as excluded beside the flag, in every implementation."""
    logits = torch.tensor(
        [[math.nan, 2.0, INF, 1.0], [-INF] * 4, [math.nan] * 4, [-math.nan, INF, -INF, 3e38]],
        device=device,
    )
    found = select_candidates(logits, backend=backend)
    assert found.flags.tolist() == [NOT_FINITE] * 4
    assert found.ids[:, :4].tolist() == [[1, 3, 0, 2], [0, 1, 2, 3], [0, 1, 2, 3], [3, 0, 1, 2]]
    assert found.logits[0, :4].tolist() == [2.0, 1.0, -INF, -INF]
    assert found.log_sum[1:].tolist() == [-INF, -INF, pytest.approx(3e38)]
    assert float(found.log_sum[0]) == pytest.approx(2.3132617, abs=1e-6)


def test_log_probabilities_of_more_than_the_vocabulary():
    """SA-10: places that no token fills have id -1 and log probability -inf."""
    logits = torch.tensor([[1.0, 3.0, 3.0]])
    _, ids, values = token_logprobs(
        logits, torch.tensor([0], dtype=torch.int32), select_candidates(logits), 5
    )
    assert ids.tolist() == [[1, 2, 0, -1, -1]]
    assert values[0, 3:].tolist() == [-INF, -INF]


BIAS = ((0, INF), (1, -INF), (2, 3e38), (3, -3e38), (4, 5.0), (-1, 9.0), (77, 9.0), (-9, 9.0))


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_excluded_tokens_stay_excluded_whatever_is_added(backend: str, device: str):
    """SA-2, SA-3: infinite and huge biases and penalties; ids outside the vocabulary are none."""
    logits = torch.tensor([[1.0, 1.0, 3e38, -3e38, -INF, 2.0, -INF]], device=device).repeat(2, 1)
    logits[1, 0] = -INF
    ids, values = zip(*BIAS, strict=True)
    counts = torch.tensor([[0, 0, 0, 0, 7, 0, 3]], dtype=torch.int32, device=device)
    got = apply_penalties(
        logits,
        torch.zeros(2, dtype=torch.int32, device=device),
        Penalties(*(torch.tensor([x], device=device) for x in (-2.0, -INF, -3e38))),
        counts,
        drafts=torch.tensor([[5], [99]], dtype=torch.int32, device=device),
        bias_ids=torch.tensor([ids], dtype=torch.int32, device=device),
        bias_values=torch.tensor([values], device=device),
        backend=backend,
    )
    # Token 5 is a draft of row 0 only: its presence penalty is -inf.
    assert got[0].tolist() == [INF, -INF, INF, -INF, -INF, INF, -INF]
    assert got[1].tolist() == [-INF, -INF, INF, -INF, -INF, 2.0, -INF]
    assert select_candidates(got, backend=backend).flags.tolist() == [NOT_FINITE] * 2


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_a_masked_token_with_an_endless_bias_stays_masked(backend: str, device: str):
    """SA-1, SA-3: the mask comes last."""
    logits = torch.zeros(1, 35, device=device)
    whole = {
        "bias_ids": torch.tensor([[2, 34]], dtype=torch.int32, device=device),
        "bias_values": torch.tensor([[INF, 100.0]], device=device),
        "mask": torch.tensor([[3, 0]], dtype=torch.int32, device=device),
    }
    neutral = Penalties(*(torch.tensor([x], device=device) for x in (1.0, 0.0, 0.0)))
    lane = torch.zeros(1, dtype=torch.int32, device=device)
    counts = torch.zeros(1, 35, dtype=torch.int32, device=device)
    got = apply_penalties(logits, lane, neutral, counts, **whole, backend=backend)
    assert got[0].tolist() == [0.0, 0.0] + [-INF] * 33
    tokens = torch.tensor([[34, 35, -1, 2]], dtype=torch.int32, device=device)
    record_tokens(counts, lane, tokens, lane + 4, backend=backend)
    assert counts.sum() == 2 and counts[0, 34] == 1 and counts[0, 2] == 1


def change(found: Candidates, **fields: torch.Tensor) -> Candidates:
    return Candidates(**{**vars(found), **fields})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, p, c: select_candidates(x.double()), "logits: got torch.float64"),
        (lambda x, p, c: select_candidates(x[:, :0]), r"logits: got torch.float32 \(2, 0\)"),
        (lambda x, p, c: select_candidates(x.t()), "contiguous in V"),
        (lambda x, p, c: select_candidates(x, out=change(c, ids=c.ids[:1])), "candidates.ids"),
        (
            lambda x, p, c: choose_tokens(
                x, p, torch.zeros(2, dtype=torch.int32), 0, candidates=change(c, flags=c.ids)
            ),
            "candidates.flags",
        ),
        (lambda x, p, c: candidate_probabilities(c, p, out=torch.zeros(2, 3)), "out: got"),
        (lambda x, p, c: p.limit(65), "count: got 65, want 1 to 64"),
        (lambda x, p, c: record_tokens(c.ids, c.flags, c.flags, c.flags), "counts and tokens"),
    ],
)
def test_what_does_not_fit_is_named(call, message: str):
    logits = torch.randn(2, 9)
    with pytest.raises(ValueError, match=message):
        call(logits, parameters_of([(1.0, 3, 1.0, 0.0)] * 2), select_candidates(logits))
