"""The gated delta rule in plain torch: rounds and the folding of records.

Per value head, with its key head's q and k (value head j reads key head j // (nv / nk)):

    q = l2(q) / sqrt(Dk)   k = l2(k)   l2(x) = x / sqrt(sum(x^2) + eps)
    decay = exp(-exp(a_log) * softplus(a + dt_bias))     beta = sigmoid(b)
    S = decay * S ;  u = beta * (v - S k) ;  S = S + u k^T ;  o = S q

S is [Dv, Dk]; everything is float32 until o is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import softplus

from ninfer_kernels.gated_delta.records import ReplayRecords


@dataclass(frozen=True)
class Terms:
    """What the recurrence reads, fp32: query, key [n, T, nk, Dk], value [n, T, nv, Dv],
    log_decay = log of the decay, and beta, both [n, T, nv]."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    log_decay: torch.Tensor
    beta: torch.Tensor


def normalise(x: torch.Tensor, eps: float) -> torch.Tensor:
    """Return x / sqrt(sum(x^2) + eps) over the last dimension."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + eps)


def prepare_terms(
    mixed: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    records: ReplayRecords,
    eps: float,
) -> Terms:
    """Split `mixed` [n, T, 2 nk Dk + nv Dv] into q, k, v and compute the gates."""
    key_heads, key_dim = records.key.shape[2:]
    value_heads, value_dim = records.update.shape[2:]
    sizes = (key_heads * key_dim, key_heads * key_dim, value_heads * value_dim)
    query, key, value = mixed.float().split(sizes, dim=-1)
    return Terms(
        query=normalise(query.unflatten(-1, (key_heads, key_dim)), eps) * key_dim**-0.5,
        key=normalise(key.unflatten(-1, (key_heads, key_dim)), eps),
        value=value.unflatten(-1, (value_heads, value_dim)),
        log_decay=-torch.exp(a_log.float()) * softplus(a.float() + dt_bias.float()),
        beta=torch.sigmoid(b.float()),
    )


def expand_heads(x: torch.Tensor, value_heads: int, dim: int) -> torch.Tensor:
    """Repeat every key head for the value heads that read it."""
    return x.repeat_interleave(value_heads // x.shape[dim], dim)


def decay_state(state: torch.Tensor, decay: torch.Tensor) -> None:
    """S = decay * S, in place: state [n, nv, Dv, Dk], decay [n, nv]."""
    state.mul_(decay[..., None, None])


def update_state(state: torch.Tensor, update: torch.Tensor, key: torch.Tensor) -> None:
    """S = S + u k^T, in place: update [n, nv, Dv], key [n, nk, Dk]."""
    keys = expand_heads(key, state.shape[1], 1)
    torch.addcmul(state, update[..., :, None], keys[..., None, :], out=state)


def fold_state(
    state: torch.Tensor,
    records: ReplayRecords,
    rows: torch.Tensor,
    first: torch.Tensor,
    count: torch.Tensor,
) -> None:
    """Apply records of slots `rows` [n] to `state` [n, nv, Dv, Dk], oldest first.

    They are those of positions first .. first + count - 1, both [n].
    """
    for index in range(int(count.max()) if count.numel() else 0):
        some = torch.nonzero(count > index).flatten()
        place = (first[some] + index) % records.length
        part = state[some]
        decay_state(part, records.decay[rows[some], place])
        update_state(part, records.update[rows[some], place], records.key[rows[some], place])
        state[some] = part


def run_round(
    mixed: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    state: torch.Tensor,
    records: ReplayRecords,
    slots: torch.Tensor,
    columns: torch.Tensor,
    base: torch.Tensor,
    accepted: torch.Tensor,
    settled: torch.Tensor,
    eps: float,
    out: torch.Tensor,
) -> torch.Tensor:
    """Define `gated_delta_round`; idle lanes are left out by a selection that synchronises."""
    out.zero_()
    active = torch.nonzero(columns > 0).flatten()
    if active.numel() == 0:
        return out
    rows, begin = slots[active].long(), base[active].long()
    current = state[rows]
    old = settled[rows].long()
    last = accepted[rows].long() - old
    fold_state(current, records, rows, begin - last - old, old)
    state[rows] = current
    fold_state(current, records, rows, begin - last, last)
    terms = prepare_terms(mixed[active], a[active], b[active], a_log, dt_bias, records, eps)
    for column in range(int(columns.max())):
        real = torch.nonzero(columns[active] > column).flatten()
        if real.numel() < current.shape[0]:
            # A finished lane drops out; its later columns stay 0 and leave no record.
            current, active, rows, begin = current[real], active[real], rows[real], begin[real]
            terms = _select(terms, real)
        out[active, column] = _step(
            terms, column, current, records, rows, (begin + column) % records.length
        ).to(out.dtype)
    return out


def _select(terms: Terms, lanes: torch.Tensor) -> Terms:
    return Terms(
        terms.query[lanes],
        terms.key[lanes],
        terms.value[lanes],
        terms.log_decay[lanes],
        terms.beta[lanes],
    )


def _step(
    terms: Terms,
    column: int,
    state: torch.Tensor,
    records: ReplayRecords,
    rows: torch.Tensor,
    place: torch.Tensor,
) -> torch.Tensor:
    """Advance `state` by one column, record it, and return o [n, nv, Dv]."""
    heads = state.shape[1]
    key, decay = terms.key[:, column], torch.exp(terms.log_decay[:, column])
    decay_state(state, decay)
    known = torch.matmul(state, expand_heads(key, heads, 1)[..., None]).squeeze(-1)
    update = terms.beta[:, column, :, None] * (terms.value[:, column] - known)
    update_state(state, update, key)
    records.key[rows, place] = key
    records.update[rows, place] = update
    records.decay[rows, place] = decay
    query = expand_heads(terms.query[:, column], heads, 1)
    return torch.matmul(state, query[..., None]).squeeze(-1)


def fold_slots(
    state: torch.Tensor,
    records: ReplayRecords,
    slots: torch.Tensor,
    base: torch.Tensor,
    accepted: torch.Tensor,
) -> None:
    """Define `fold_records`."""
    named = torch.nonzero(slots >= 0).flatten()
    rows = slots[named].long()
    current = state[rows]
    count = accepted[rows].long()
    fold_state(current, records, rows, base[named].long() - count, count)
    state[rows] = current
