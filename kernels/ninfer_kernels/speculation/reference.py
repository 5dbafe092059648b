"""Lossless acceptance in plain torch.

Left to right, draft x of column i stands if u q(x) < p(x), with u uniform in [0, 1). The first
that falls is replaced by a draw from max(p - q, 0); if all stand, the last column's own p gives
one token more. (Leviathan et al. 2023, Chen et al. 2023.)
"""

from __future__ import annotations

import torch

from ninfer_kernels.sampling.parameters import (
    ACCEPT,
    NOT_FINITE,
    NOT_NARROW,
    RESAMPLE,
    SAMPLE,
    Candidates,
    SamplingParameters,
)
from ninfer_kernels.sampling.philox import exponential_noise, uniform_noise
from ninfer_kernels.sampling.reference import (
    kept_weights,
    normalise_weights,
    order_keys,
    race,
    split_keys,
)
from ninfer_kernels.speculation.verdict import Drafts, Verdict


def draft_mass(ids: torch.Tensor, drafts: Drafts) -> torch.Tensor:
    """Return q fp32 [L, W-1, n] at the tokens ids [L, W-1, n]."""
    mass = torch.zeros(ids.shape, dtype=torch.float32, device=ids.device)
    for index in range(drafts.ids.shape[2]):
        same = ids == drafts.ids[..., index, None]
        mass = mass + torch.where(same, drafts.probabilities[..., index, None], 0.0)
    return mass


def judge_order(
    ids: torch.Tensor,
    ordered: torch.Tensor,
    drafts: Drafts,
    parameters: SamplingParameters,
    position: torch.Tensor,
    columns: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (accepted int64 [L], the token after them int32 [L]) of rows given in order.

    ids, ordered [L, W, n]: tokens of every column by falling logit.
    """
    lanes, width, count = ids.shape
    each = parameters.take(torch.arange(lanes, device=ids.device).repeat_interleave(width))
    weights = kept_weights(ordered.reshape(-1, count), each)
    target = normalise_weights(weights).view(lanes, width, count)
    weights = weights.view(lanes, width, count)
    drafted = drafts.tokens[..., None]
    p = torch.where(ids[:, :-1] == drafted, target[:, :-1], 0.0).sum(-1)
    q = torch.where(drafts.ids == drafted, drafts.probabilities, 0.0).sum(-1)
    index = torch.arange(width - 1, device=ids.device)
    u = uniform_noise(parameters.seed[:, None], position[:, None] + index, ACCEPT)
    stands = (u * q < p) & (index < columns[:, None] - 1)
    accepted = stands.long().cumprod(1).sum(1)

    lane = torch.arange(lanes, device=ids.device)
    ids, weights, target = (x[lane, accepted] for x in (ids, weights, target))
    if width > 1:
        # Beyond the last draft there is no q; the value taken instead is not used.
        at = accepted.clamp(max=width - 2)
        taken = Drafts(*(x[lane, at][:, None] for x in _fields(drafts)))
        rest = (target - draft_mass(ids[:, None], taken)[:, 0]).clamp(min=0)
        # Rounding may leave nothing of p - q although a draft fell: then p itself serves.
        rest = torch.where(rest.sum(1, keepdim=True) > 0, rest, target)
        weights = torch.where((accepted < columns - 1)[:, None], rest, weights)
    purpose = torch.where(accepted < columns - 1, RESAMPLE, SAMPLE)
    noise = exponential_noise(
        parameters.seed[:, None], (position + accepted)[:, None], purpose[:, None], ids
    )
    return accepted, ids.gather(1, race(weights, noise)[:, None]).squeeze(1).int()


def _fields(drafts: Drafts) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return drafts.tokens, drafts.ids, drafts.probabilities


def judge_wide(
    logits: torch.Tensor,
    drafts: Drafts,
    parameters: SamplingParameters,
    position: torch.Tensor,
    columns: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `judge_order` over whole rows: logits [L, W, V]."""
    keys = torch.sort(order_keys(logits.flatten(0, 1)), dim=1, descending=True).values
    ids, ordered = (x.view(logits.shape) for x in split_keys(keys))
    return judge_order(ids, ordered, drafts, parameters, position, columns)


def assemble(
    accepted: torch.Tensor,
    token: torch.Tensor,
    drafts: Drafts,
    columns: torch.Tensor,
    flags: torch.Tensor,
    out: Verdict,
) -> Verdict:
    """Write the verdict of `accepted` drafts followed by `token`."""
    fine = (columns > 0) & (flags == 0)
    accepted = torch.where(fine, accepted, 0)
    width = out.tokens.shape[1]
    index = torch.arange(width, device=token.device)
    tokens = torch.zeros_like(out.tokens)
    tokens[:, : width - 1] = drafts.tokens
    tokens = torch.where(index < accepted[:, None], tokens, 0)
    tokens = torch.where(index == accepted[:, None], token[:, None], tokens)
    out.tokens.copy_(torch.where(fine[:, None], tokens, 0))
    out.accepted.copy_(accepted)
    out.emitted.copy_(torch.where(fine, accepted + 1, 0))
    out.flags.copy_(flags)
    return out


def lane_flags(
    candidates: Candidates,
    parameters: SamplingParameters,
    columns: torch.Tensor,
    width: int,
    wide: bool,
) -> torch.Tensor:
    """Return the flags int32 [L] of the real columns of every lane."""
    real = torch.arange(width, device=columns.device) < columns[:, None]
    broken = (candidates.flags.view(-1, width) & NOT_FINITE) * real
    flags = broken.amax(1).int()
    if not wide:
        flags = flags | ((~parameters.narrow() & (columns > 0)).int() * NOT_NARROW)
    return flags


def judge(
    logits: torch.Tensor,
    candidates: Candidates,
    drafts: Drafts,
    parameters: SamplingParameters,
    position: torch.Tensor,
    columns: torch.Tensor,
    wide: bool,
    out: Verdict,
) -> Verdict:
    """Define `accept_drafts`."""
    lanes, width = logits.shape[:2]
    shape = (lanes, width, -1)
    accepted, token = judge_order(
        candidates.ids.view(shape),
        candidates.logits.view(shape),
        drafts,
        parameters,
        position,
        columns,
    )
    if wide:
        rows = torch.nonzero(~parameters.narrow() & (columns > 0)).flatten()
        if rows.numel():
            some = Drafts(*(x[rows] for x in _fields(drafts)))
            accepted[rows], token[rows] = judge_wide(
                logits[rows], some, parameters.take(rows), position[rows], columns[rows]
            )
    flags = lane_flags(candidates, parameters, columns, width, wide)
    return assemble(accepted, token, drafts, columns, flags, out)
