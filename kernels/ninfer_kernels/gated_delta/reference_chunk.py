"""The gated delta rule over many columns at once, in chunks, in plain torch.

Inside a chunk of C columns, with G the running sum of the log decays and D_ij = exp(G_i - G_j)
for i >= j (the rest 0), the updates of all columns follow from one triangular system:

    (I + strict_lower(diag(beta) K K^T * D)) [U | W] = [diag(beta) V | diag(beta exp(G)) K]
    V' = U - W S^T                                       (row i is column i's update u)
    O  = (Q * exp(G)) S^T + (lower(Q K^T) * D) V'
    S  = exp(G_C) S + V'^T (K * exp(G_C - G))
"""

from __future__ import annotations

import torch

from ninfer_kernels.gated_delta.records import ReplayRecords
from ninfer_kernels.gated_delta.reference import (
    Terms,
    expand_heads,
    fold_state,
    prepare_terms,
)

CHUNK = 64
# Chunks whose systems are solved together: bounds the memory of a long prompt.
SEGMENT = 8


def run_prefill(
    mixed: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    state: torch.Tensor,
    records: ReplayRecords,
    slots: torch.Tensor,
    base: torch.Tensor,
    accepted: torch.Tensor,
    eps: float,
    out: torch.Tensor,
) -> torch.Tensor:
    """Define `gated_delta_prefill`."""
    rows = slots.long()
    current = state[rows]
    count = accepted[rows].long()
    fold_state(current, records, rows, base.long() - count, count)
    current = current[0]
    count = mixed.shape[1]
    begin = 0
    while begin < count:
        length = min(CHUNK, count - begin)
        chunks = min(SEGMENT, (count - begin) // length) if length == CHUNK else 1
        part = slice(begin, begin + chunks * length)
        terms = prepare_terms(mixed[:, part], a[:, part], b[:, part], a_log, dt_bias, records, eps)
        result, current = run_chunks(terms, chunks, current)
        out[0, part] = result.to(out.dtype)
        begin = part.stop
    state[rows] = current[None]
    return out


def _split(x: torch.Tensor, chunks: int) -> torch.Tensor:
    """[1, n C, H, ...] -> [H, n, C, ...]."""
    return x[0].unflatten(0, (chunks, -1)).movedim(2, 0)


def run_chunks(terms: Terms, chunks: int, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return o [n C, nv, Dv] and the state [nv, Dv, Dk] after `chunks` equally long chunks."""
    heads = state.shape[0]
    query, key = _split(terms.query, chunks), _split(terms.key, chunks)
    value, beta = _split(terms.value, chunks), _split(terms.beta, chunks)[..., None]
    total = _split(terms.log_decay, chunks).cumsum(-1)
    length = total.shape[-1]
    later = torch.ones(length, length, dtype=torch.bool, device=state.device).triu(1)
    between = (total[..., :, None] - total[..., None, :]).masked_fill(later, float("-inf")).exp()
    overlap = expand_heads(key @ key.mT, heads, 0)
    scores = expand_heads(query @ key.mT, heads, 0) * between
    query, key = expand_heads(query, heads, 0), expand_heads(key, heads, 0)
    grown = total.exp()[..., None]
    system = (beta * overlap * between).tril(-1)
    sides = torch.cat((beta * value, beta * grown * key), dim=-1)
    solved = torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True)
    own, carried = solved.split((value.shape[-1], key.shape[-1]), dim=-1)
    query = query * grown
    final = total[..., -1:]
    key = key * (final - total).exp()[..., None]
    results = []
    for index in range(chunks):
        update = own[:, index] - carried[:, index] @ state.mT
        results.append(query[:, index] @ state.mT + scores[:, index] @ update)
        state = final[:, index].exp()[..., None] * state + update.mT @ key[:, index]
    return torch.stack(results, 1).flatten(1, 2).movedim(0, 1), state
