"""What a row is sampled with, and the first candidates of a row."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch

# Rows that need no more than the first candidates are narrow; others read the whole row again.
CANDIDATES = 64

# Temperatures are taken as between these: beyond, the quotient of zero or -inf would be NaN.
LEAST_TEMPERATURE, MOST_TEMPERATURE = 2.0**-126, 2.0**127

# Purposes of random numbers: streams that never share a counter.
SAMPLE, ACCEPT, RESAMPLE, DRAFT = 0, 1, 2, 3

# Bits of a row's flag. NOT_FINITE: NaN, +inf or nothing but -inf among the logits.
# NOT_NARROW: the caller promised narrow rows and this one is not.
NOT_FINITE, NOT_NARROW = 1, 2


@dataclass(frozen=True)
class SamplingParameters:
    """One entry per row, on the device of the logits.

    temperature fp32: 0 is greedy. top_k int32: 0 or less keeps all. top_p fp32: 1 or more keeps
    all. min_p fp32: 0 or less keeps all. seed int64.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    seed: torch.Tensor

    def check(self, rows: int) -> None:
        """Raise ValueError unless every field has `rows` entries of its dtype."""
        wanted = {"top_k": torch.int32, "seed": torch.int64}
        for field in fields(self):
            tensor = getattr(self, field.name)
            dtype = wanted.get(field.name, torch.float32)
            if tensor.dtype != dtype or tuple(tensor.shape) != (rows,):
                raise ValueError(
                    f"{field.name}: got {tensor.dtype} {tuple(tensor.shape)}, want {dtype} [{rows}]"
                )

    def take(self, index: torch.Tensor) -> SamplingParameters:
        """Return the entries of rows `index`."""
        return SamplingParameters(*(getattr(self, field.name)[index] for field in fields(self)))

    def limit(self, count: int) -> SamplingParameters:
        """Return parameters that keep at most `count` tokens, 1 to 64: a draft's sparse q.

        Raises ValueError for another count.
        """
        if not 1 <= count <= CANDIDATES:
            raise ValueError(f"count: got {count}, want 1 to {CANDIDATES}")
        top_k = torch.where(self.top_k <= 0, count, self.top_k.clamp(max=count))
        return replace(self, top_k=top_k.to(torch.int32))

    def narrow(self) -> torch.Tensor:
        """Return which rows are decided by their first candidates, bool [R]."""
        limited = (self.top_k >= 1) & (self.top_k <= CANDIDATES)
        return limited | (self.temperature <= 0)


@dataclass(frozen=True)
class Candidates:
    """The first candidates of every row, the largest logit first, equal ones by lower index.

    ids int32 [R, 64] (-1 where fewer were found), logits fp32 [R, 64] (-inf there),
    log_sum fp32 [R]: log of the sum of exp over the whole row; flags int32 [R].
    """

    ids: torch.Tensor
    logits: torch.Tensor
    log_sum: torch.Tensor
    flags: torch.Tensor


def allocate_candidates(rows: int, device: torch.device | str) -> Candidates:
    """Return unfilled candidates of `rows` rows."""
    return Candidates(
        ids=torch.empty(rows, CANDIDATES, dtype=torch.int32, device=device),
        logits=torch.empty(rows, CANDIDATES, dtype=torch.float32, device=device),
        log_sum=torch.empty(rows, dtype=torch.float32, device=device),
        flags=torch.empty(rows, dtype=torch.int32, device=device),
    )


@dataclass(frozen=True)
class CandidateWorkspace:
    """Partial results of `select_candidates`, one per block of `BLOCK` tokens of a row."""

    keys: torch.Tensor
    largest: torch.Tensor
    sums: torch.Tensor
    flags: torch.Tensor


# Tokens one program orders; the best 64 of every block meet in a second step.
BLOCK = 4096


def allocate_workspace(
    rows: int, vocabulary: int, device: torch.device | str
) -> CandidateWorkspace:
    """Return the workspace of `select_candidates` for up to `rows` rows."""
    blocks = -(-vocabulary // BLOCK)
    return CandidateWorkspace(
        keys=torch.empty(rows, blocks, CANDIDATES, dtype=torch.int64, device=device),
        largest=torch.empty(rows, blocks, dtype=torch.float32, device=device),
        sums=torch.empty(rows, blocks, dtype=torch.float32, device=device),
        flags=torch.empty(rows, blocks, dtype=torch.int32, device=device),
    )


@dataclass(frozen=True)
class Penalties:
    """One entry per lane, fp32. Neutral: repetition 1, presence 0, frequency 0."""

    repetition: torch.Tensor
    presence: torch.Tensor
    frequency: torch.Tensor
