"""Vision attention in plain torch: the definition. Rule N-32 of specs/numerics.md."""

from __future__ import annotations

from itertools import pairwise

import torch

# Bounds the scores held at a time to this many fp32 numbers (64 MiB).
MOST_SCORES = 1 << 24


def vision_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, boundaries: torch.Tensor, scale: float
) -> torch.Tensor:
    """Return [T, H, D]: softmax(scale q k) v over the patches of the query's own frame.

    Frame f is rows boundaries[f]..boundaries[f + 1].
    """
    out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    edges = boundaries.tolist()
    for begin, end in pairwise(edges):
        keys = k[begin:end].float().permute(1, 2, 0)
        values = v[begin:end].float().transpose(0, 1)
        step = max(1, MOST_SCORES // max(1, q.shape[1] * (end - begin)))
        for first in range(begin, end, step):
            last = min(first + step, end)
            queries = q[first:last].float().transpose(0, 1) * scale
            weights = torch.softmax(queries @ keys, dim=-1)
            out[first:last] = (weights @ values).transpose(0, 1).to(q.dtype)
    return out
