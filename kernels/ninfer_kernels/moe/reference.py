"""The definition of routing and experts in plain torch, on any device."""

from __future__ import annotations

import torch

from ninfer_kernels.linear.decoding import decode_matrix
from ninfer_kernels.linear.matrix import Matrix
from ninfer_kernels.moe.experts import MoeWeights


def route_reference(logits: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> None:
    """Write the top experts of logits float32 [T, E] and their weights to [T, top_k].

    p = softmax(logits); the largest p first, of equal logits the lower expert; weights are
    p_k / sum of the chosen p, rounded once to the type of `weights`.
    """
    top_k = ids.shape[1]
    order = torch.sort(logits, dim=1, descending=True, stable=True).indices[:, :top_k]
    chosen = torch.softmax(logits, dim=1).gather(1, order)
    ids.copy_(order)
    weights.copy_(chosen / chosen.sum(dim=1, keepdim=True))


def experts_reference(
    x: torch.Tensor,
    weights: MoeWeights,
    ids: torch.Tensor,
    hidden: torch.Tensor,
    pairs: torch.Tensor,
) -> None:
    """Write every pair's down(silu(gate x) * up x) to pairs [T * top_k, H], expert by expert.

    Pair t * top_k + j is token t with its j-th expert; `hidden` [T * top_k, I] takes the input
    of down, rounded to the compute dtype as are the pairs.
    """
    chosen = ids.flatten().long()
    for expert in torch.unique(chosen).tolist():
        rows = torch.nonzero(chosen == expert).flatten()
        wide = x[rows // weights.top_k].float()
        gate = _multiply(wide, weights.gate.expert(expert))
        up = _multiply(wide, weights.up.expert(expert))
        hidden[rows] = (gate * torch.sigmoid(gate) * up).to(hidden.dtype)
        down = _multiply(hidden[rows].float(), weights.down.expert(expert))
        pairs[rows] = down.to(pairs.dtype)


def combine_reference(
    pairs: torch.Tensor,
    weights: torch.Tensor,
    shared: torch.Tensor | None,
    score: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Write y[t] = sum_j weights[t, j] * pairs[t, j] (+ sigmoid(score[t]) * shared[t]) to out.

    float32 sums, j ascending and the shared expert last; one rounding.
    """
    tokens, top_k = weights.shape
    stacked = pairs.view(tokens, top_k, -1).float()
    total = torch.zeros(tokens, stacked.shape[2], device=pairs.device)
    for j in range(top_k):
        total += weights[:, j : j + 1].float() * stacked[:, j]
    if shared is not None and score is not None:
        total += torch.sigmoid(score.float()) * shared.float()
    out.copy_(total)


def _multiply(x: torch.Tensor, matrix: Matrix) -> torch.Tensor:
    return x @ decode_matrix(matrix).T
