"""What a check of the engine says: one row for each thing it looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from builders.engines import Answer

# Relative error of bfloat16 on a GPU (specs/numerics.md, N-61 and N-63).
BOUND = 2e-2


@dataclass(frozen=True)
class Row:
    """`share` is the error as a share of what is allowed; `detail` is said beside it."""

    case: str
    share: float
    detail: str = ""


def expect(case: str, holds: bool, detail: str = "") -> Row:
    """Return the row of something that is so or not."""
    return Row(case, 0.0 if holds else float("inf"), detail)


def compare(case: str, got: torch.Tensor, want: torch.Tensor, bound: float = BOUND) -> Row:
    """Return the row of the largest difference by the largest magnitude of `want`."""
    error = (got.float().cpu() - want.float().cpu()).abs().max() / want.float().abs().max().cpu()
    share = float(error) / bound
    return Row(case, share if share == share else float("inf"), f"error {float(error):.2e}")


def compare_tops(case: str, got: torch.Tensor, want: torch.Tensor) -> Row:
    """Return whether rows of logits have the same top wherever `want` leads by twice the error
    of its row (N-61), and how many rows that are."""
    got, want = got.float().cpu(), want.float().cpu()
    error = (got - want).abs().amax(1)
    first, second = want.topk(2).values.unbind(1)
    clear = first - second > 2 * error
    same = got.argmax(1) == want.argmax(1)
    detail = f"{int(clear.sum())} of {len(clear)} rows are clear"
    return expect(case, bool(same[clear].all()) and bool(clear.any()), detail)


def compare_tokens(
    case: str, got: Sequence[int], want: Answer, scale: float, bound: float = BOUND
) -> Row:
    """Return whether greedy tokens are equal up to a place where the lead of the first candidate
    over the second was below twice the error allowed: `bound` of the largest logit `scale`.

    What follows another token cannot be compared. `want` has scores of two candidates or more.
    """
    pairs = list(zip(got, want.tokens, strict=False))
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if place is None:
        equal = len(got) == len(want.tokens)
        return expect(case, equal, f"{len(got)} tokens equal of {len(want.tokens)}")
    (_, first), (_, second) = want.scores[place].top[:2]
    lead, allowed = first - second, 2 * bound * scale
    detail = f"token {place} of {len(want.tokens)} differs, lead {lead:.2e}, allowed {allowed:.2e}"
    return Row(case, lead / allowed, detail)
