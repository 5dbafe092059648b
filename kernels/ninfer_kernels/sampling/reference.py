"""Choice of tokens in plain torch; `specs/sampling.md` states the law.

A row's tokens are ordered by logit, the largest first and equal ones by lower index. Every filter
keeps a prefix of that order. Of the kept tokens the one with the least E_t / w_t is chosen, where
w_t = exp((z_t - z_max) / temperature) and E_t is exponential noise: that is a draw from softmax.
"""

from __future__ import annotations

import torch

from ninfer_kernels.sampling.parameters import (
    CANDIDATES,
    LEAST_TEMPERATURE,
    MOST_TEMPERATURE,
    NOT_FINITE,
    NOT_NARROW,
    Candidates,
    SamplingParameters,
)
from ninfer_kernels.sampling.philox import exponential_noise, vocabulary_noise

_SIGN = 0x80000000
_MASK = 0xFFFFFFFF


def order_keys(logits: torch.Tensor) -> torch.Tensor:
    """Return int64 keys [R, V], all distinct, whose descending order is the order of tokens."""
    # -0 and 0 are equal logits.
    bits = (logits.float() + 0.0).view(torch.int32).long() & _MASK
    rising = torch.where(bits >= _SIGN, _MASK - bits, bits + _SIGN)
    index = torch.arange(logits.shape[1], device=logits.device)
    return ((rising - _SIGN) << 32) | (_MASK - index)


def split_keys(keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the token ids int64 and logits fp32 of `order_keys`."""
    ids = _MASK - (keys & _MASK)
    rising = (keys >> 32) + _SIGN
    bits = torch.where(rising >= _SIGN, rising - _SIGN, _MASK - rising)
    signed = torch.where(bits >= _SIGN, bits - (_SIGN << 1), bits)
    return ids, signed.to(torch.int32).view(torch.float32)


def find_candidates(logits: torch.Tensor, wanted: int) -> Candidates:
    """Define `select_candidates`."""
    values = logits.float()
    broken = torch.isnan(values) | (values == float("inf"))
    values = values.masked_fill(broken, float("-inf"))
    rows, vocabulary = values.shape
    count = min(wanted, vocabulary)
    keys = torch.topk(order_keys(values), count, dim=1).values
    ids = torch.full((rows, CANDIDATES), -1, dtype=torch.int32, device=values.device)
    best = torch.full(ids.shape, float("-inf"), device=values.device)
    some_ids, some_logits = split_keys(keys)
    ids[:, :count], best[:, :count] = some_ids.int(), some_logits
    flagged = broken.any(1) | (values.amax(1) == float("-inf"))
    return Candidates(ids, best, torch.logsumexp(values, 1), flagged.int() * NOT_FINITE)


def kept_weights(ordered: torch.Tensor, parameters: SamplingParameters) -> torch.Tensor:
    """Return w fp32 [R, n] of logits in order, 0 for what the filters drop.

    `ordered` holds at least every token that top_k keeps. Greedy rows keep the first token.
    """
    temperature = parameters.temperature[:, None]
    greedy = temperature <= 0
    divisor = temperature.clamp(LEAST_TEMPERATURE, MOST_TEMPERATURE)
    # Subtracting first: a tiny temperature cannot make infinities of both terms.
    scaled = (ordered - ordered[:, :1]) / torch.where(greedy, 1.0, divisor)
    weights = torch.exp(scaled)
    place = torch.arange(ordered.shape[1], device=ordered.device)
    top_k = torch.where(greedy[:, 0], 1, parameters.top_k)[:, None]
    weights = torch.where((place < top_k) | (top_k <= 0), weights, 0.0)
    # Sums of a whole vocabulary in float32 would move the edge by many tokens.
    until = weights.double().cumsum(1)
    before, total = (until - weights).float(), until[:, -1:].float()
    top_p = parameters.top_p[:, None]
    within = (before < top_p * total) | (top_p >= 1)
    likely = weights >= parameters.min_p[:, None]
    # The first token stays whatever top_p and min_p say.
    return torch.where((within & likely) | (place == 0), weights, 0.0)


def race(weights: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Return the index of the least noise / weight among positive weights, int64 [R]."""
    return torch.where(weights > 0, noise / weights, float("inf")).argmin(1)


def choose_from_order(
    ids: torch.Tensor, ordered: torch.Tensor, parameters: SamplingParameters, noise: torch.Tensor
) -> torch.Tensor:
    """Return the chosen tokens int32 [R] of rows given in order; noise belongs to `ids`."""
    best = race(kept_weights(ordered, parameters), noise)
    return ids.gather(1, best[:, None]).squeeze(1).int()


def choose_wide(
    logits: torch.Tensor, parameters: SamplingParameters, position: torch.Tensor, purpose: int
) -> torch.Tensor:
    """Return the chosen tokens int32 [R], from the whole row."""
    noise = vocabulary_noise(parameters.seed[:, None], position[:, None], purpose, logits.shape[1])
    keys = torch.sort(order_keys(logits), dim=1, descending=True).values
    ids, ordered = split_keys(keys)
    return choose_from_order(ids, ordered, parameters, noise.gather(1, ids))


def choose(
    logits: torch.Tensor,
    candidates: Candidates,
    parameters: SamplingParameters,
    position: torch.Tensor,
    purpose: int,
    wide: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Define `choose_tokens`: return (tokens, flags)."""
    ids = candidates.ids
    noise = exponential_noise(parameters.seed[:, None], position[:, None], purpose, ids)
    tokens = choose_from_order(ids, candidates.logits, parameters, noise)
    flags = candidates.flags
    narrow = parameters.narrow()
    if not wide:
        flags = flags | ((~narrow).int() * NOT_NARROW)
    elif logits.is_cuda:
        # Which rows are wide is known on the device only, so all of them are worked out.
        tokens = torch.where(narrow, tokens, choose_wide(logits, parameters, position, purpose))
    elif not bool(narrow.all()):
        rows = torch.nonzero(~narrow).flatten()
        tokens[rows] = choose_wide(logits[rows], parameters.take(rows), position[rows], purpose)
    return torch.where(flags == 0, tokens, 0), flags


def normalise_weights(weights: torch.Tensor) -> torch.Tensor:
    """Return the probabilities of `kept_weights`."""
    return weights / weights.sum(1, keepdim=True)


def token_logprobs(
    logits: torch.Tensor, tokens: torch.Tensor, candidates: Candidates, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return log probabilities at temperature 1, before every filter.

    logits [R, V] and their `candidates`; tokens int32 [R]. Returns (fp32 [R] of the tokens,
    int32 [R, count] ids and fp32 [R, count] values of the most likely tokens), count <= 64.
    Raises ValueError for a larger count.
    """
    if not 0 <= count <= CANDIDATES:
        raise ValueError(f"count: got {count}, want 0 to {CANDIDATES}")
    chosen = logits.gather(1, tokens.long()[:, None]).squeeze(1).float() - candidates.log_sum
    values = candidates.logits[:, :count] - candidates.log_sum[:, None]
    return chosen, candidates.ids[:, :count], values
