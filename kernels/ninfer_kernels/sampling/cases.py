"""Shapes sampling is tested and measured with, odd ones first."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.checking import error_share, poisoned
from ninfer_kernels.sampling.op import (
    apply_penalties,
    candidate_probabilities,
    choose_tokens,
    record_tokens,
    select_candidates,
)
from ninfer_kernels.sampling.parameters import (
    SAMPLE,
    Candidates,
    Penalties,
    SamplingParameters,
    allocate_candidates,
    allocate_workspace,
)

# Relative error of a probability (rule N-49) and of a time in the race (rule N-48).
PROBABILITY_ERROR = 64 * 2.0**-24


@dataclass(frozen=True)
class SamplingCase:
    rows: int
    vocabulary: int
    dtype: torch.dtype = torch.float32
    small: bool = False

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.vocabulary} {self.dtype}"


CASES: tuple[SamplingCase, ...] = (
    SamplingCase(3, 7, small=True),
    SamplingCase(4, 517, torch.bfloat16, small=True),
    SamplingCase(2, 4099, small=True),
    SamplingCase(1, 248077),
    SamplingCase(32, 248077),
    SamplingCase(8, 248320, torch.bfloat16),
)


def make_logits(case: SamplingCase, device: torch.device | str, seed: int) -> torch.Tensor:
    """Return logits with many ties, signed zeros and masked tokens; a part of wider rows."""
    generator = torch.Generator(device).manual_seed(seed)
    shape = (case.rows, case.vocabulary + 3)
    logits = torch.randn(shape, generator=generator, device=device) * 4
    logits = (logits * 16).round() / 16
    logits[:, 1::7] *= 0.0
    logits[:, ::5] = float("-inf")
    return logits.to(case.dtype)[:, : case.vocabulary]


def make_parameters(
    rows: int, device: torch.device | str, seed: int, wide: bool = False
) -> SamplingParameters:
    """Return a mix of greedy and sampled rows; with `wide`, some need the whole row."""
    index = torch.arange(rows)
    top_k = torch.tensor([20, 0, 1, 64, 5])[index % 5]
    if wide:
        top_k = torch.tensor([20, 0, 65, 0, 3])[index % 5]
    temperature = torch.tensor([0.7, 0.0, 1.0, 1.6])[index % 4]
    narrow = (top_k > 0) | (temperature == 0) | torch.tensor(wide)
    return SamplingParameters(
        temperature=temperature.to(device),
        top_k=torch.where(narrow, top_k, 64).int().to(device),
        top_p=torch.tensor([0.95, 1.0, 0.8])[index % 3].to(device),
        min_p=torch.tensor([0.0, 0.05])[index % 2].to(device),
        seed=(index * 0x9E3779B97F4A7C1 - (seed << 40)).to(device),
    )


def worst_error(case: SamplingCase, device: torch.device | str, seed: int, backend: str) -> float:
    """Return the largest error as a share of what is allowed; outputs are poisoned."""
    logits = make_logits(case, device, seed)
    found = _poisoned_candidates(case, device)
    workspace = allocate_workspace(case.rows, case.vocabulary, device)
    workspace.keys.fill_(2**62)
    select_candidates(logits, out=found, workspace=workspace, backend=backend)
    want = select_candidates(logits, backend="reference")
    parameters = make_parameters(case.rows, device, seed)
    probabilities = candidate_probabilities(found, parameters, backend=backend)
    exact = candidate_probabilities(want, parameters, backend="reference")
    shares = [
        error_share(found.ids, want.ids, 0.0),
        float(not torch.equal(found.logits, want.logits)) * 2,
        error_share(found.log_sum, want.log_sum, 16 * 2.0**-24 * (1 + want.log_sum.abs())),
        error_share(found.flags, want.flags, 0.0),
        error_share(probabilities, exact, PROBABILITY_ERROR * exact + 1e-30),
        _token_error(logits, found, parameters, backend),
        _penalty_error(logits, seed, backend),
        _count_error(found, case.vocabulary, backend),
    ]
    return max(shares)


def _poisoned_candidates(case: SamplingCase, device: torch.device | str) -> Candidates:
    found = allocate_candidates(case.rows, device)
    for tensor in (found.ids, found.logits, found.log_sum, found.flags):
        tensor.copy_(poisoned(tuple(tensor.shape), tensor.dtype, device))
    return found


def _token_error(
    logits: torch.Tensor, found: Candidates, parameters: SamplingParameters, backend: str
) -> float:
    shares = []
    for step in range(4):
        position = torch.full((logits.shape[0],), 1000 + step, device=logits.device).int()
        arguments = (logits, parameters, position, SAMPLE)
        got, _ = choose_tokens(*arguments, candidates=found, wide=False, backend=backend)
        want, _ = choose_tokens(*arguments, wide=False, backend="reference")
        shares.append(error_share(got, want, 0.0))
    return max(shares)


def _count_error(found: Candidates, vocabulary: int, backend: str) -> float:
    """Count the first three candidates of every row, the last twice; of row r only r mod 5."""
    rows, device = len(found.flags), found.ids.device
    tokens = found.ids[:, [0, 1, 2, 2]].contiguous()
    lanes = torch.arange(rows, device=device).flip(0).int()
    results = []
    for chosen in (backend, "reference"):
        counts = torch.ones(rows, vocabulary, dtype=torch.int32, device=device)
        record_tokens(counts, lanes, tokens, lanes % 5, backend=chosen)
        results.append(counts)
    return error_share(results[0], results[1], 0.0)


def _penalty_error(logits: torch.Tensor, seed: int, backend: str) -> float:
    rows, vocabulary = logits.shape
    generator = torch.Generator(logits.device).manual_seed(seed)

    def integers(low: int, high: int, *shape: int) -> torch.Tensor:
        options = {"generator": generator, "device": logits.device, "dtype": torch.int32}
        return torch.randint(low, high, shape, **options)

    penalties = Penalties(
        *(torch.full((2,), value, device=logits.device) for value in (1.25, 0.5, 0.125))
    )
    bias_ids = torch.tensor([[0, 1, -1], [3, 2, 5]], device=logits.device).int()
    extra = {
        "prompt": integers(0, 2, 2, vocabulary).to(torch.uint8),
        "drafts": integers(-1, vocabulary, rows, 3),
        "bias_ids": bias_ids,
        "bias_values": bias_ids.float() * 0.75,
        "mask": integers(-(2**31), 2**31 - 1, rows, -(-vocabulary // 32)),
    }
    lanes = torch.arange(rows, device=logits.device).int() % 2
    counts = integers(-2, 4, 2, vocabulary).clamp(min=0)
    out = poisoned((rows, vocabulary), torch.float32, logits.device)
    apply_penalties(logits, lanes, penalties, counts, **extra, out=out, backend=backend)
    want = apply_penalties(logits, lanes, penalties, counts, **extra, backend="reference")
    masked = want == float("-inf")
    if not torch.equal(masked, out == float("-inf")):
        return float("inf")
    zero = torch.zeros_like(want)
    got, want = torch.where(masked, zero, out), torch.where(masked, zero, want)
    return error_share(got, want, 8 * 2.0**-24 * (want.abs() + 8))
