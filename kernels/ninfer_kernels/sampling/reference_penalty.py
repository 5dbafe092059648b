"""Penalties, bias and token masks in plain torch; `specs/sampling.md` states the order."""

from __future__ import annotations

import torch

from ninfer_kernels.sampling.parameters import Penalties


def count_drafts(drafts: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Return int32 [R, V]: how often each token occurs in drafts [R, E]; no other number does."""
    counts = torch.zeros(drafts.shape[0], vocabulary, dtype=torch.int32, device=drafts.device)
    index, real = _split_ids(drafts, vocabulary)
    return counts.scatter_add(1, index, real.int())


def _split_ids(ids: torch.Tensor, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids as legal int64 indices, and which of them name a token."""
    return ids.clamp(0, vocabulary - 1).long(), (ids >= 0) & (ids < vocabulary)


def unpack_mask(mask: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Return bool [R, V] of int32 words: bit t mod 32 of word t div 32 allows token t."""
    bits = torch.arange(32, dtype=torch.int32, device=mask.device)
    return ((mask[..., None] >> bits) & 1).flatten(1)[:, :vocabulary] != 0


def penalise(
    logits: torch.Tensor,
    lanes: torch.Tensor,
    penalties: Penalties,
    counts: torch.Tensor,
    prompt: torch.Tensor | None,
    drafts: torch.Tensor | None,
    bias_ids: torch.Tensor | None,
    bias_values: torch.Tensor | None,
    mask: torch.Tensor | None,
    out: torch.Tensor,
) -> torch.Tensor:
    """Define `apply_penalties`."""
    lane = lanes.long()
    values = logits.float()
    vocabulary = values.shape[1]
    count = counts[lane]
    if drafts is not None:
        count = count + count_drafts(drafts, vocabulary)
    seen = count > 0
    known = seen if prompt is None else seen | (prompt[lane] != 0)
    repetition = penalties.repetition[lane, None]
    repeated = torch.where(values > 0, values / repetition, values * repetition)
    values = torch.where(known, repeated, values)
    values = values - penalties.frequency[lane, None] * count
    values = values - torch.where(seen, penalties.presence[lane, None], 0.0)
    values = torch.where(logits == float("-inf"), float("-inf"), values)
    if bias_ids is not None and bias_values is not None:
        index, real = _split_ids(bias_ids[lane], vocabulary)
        biased = values.scatter_add(1, index, torch.where(real, bias_values[lane], 0.0))
        values = torch.where(values == float("-inf"), float("-inf"), biased)
    if mask is not None:
        values = values.masked_fill(~unpack_mask(mask, vocabulary), float("-inf"))
    return out.copy_(values)


def add_counts(
    counts: torch.Tensor, lanes: torch.Tensor, tokens: torch.Tensor, emitted: torch.Tensor
) -> None:
    """Define `record_tokens`."""
    index, known = _split_ids(tokens, counts.shape[1])
    real = known & (torch.arange(tokens.shape[1], device=tokens.device) < emitted[:, None])
    rows = lanes.long()[:, None].expand_as(tokens)[real]
    values = torch.ones(rows.shape, dtype=counts.dtype, device=counts.device)
    counts.index_put_((rows, index[real]), values, accumulate=True)
