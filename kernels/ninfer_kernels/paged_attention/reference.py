"""Paged causal attention in plain torch: the definition. Rule N-27 of specs/numerics.md."""

from __future__ import annotations

import torch

from ninfer_kernels.kv_codec.pages import PAGE_TOKENS, KVPages
from ninfer_kernels.kv_codec.reference import read_kv

# Keys taken at a time: bounds the scores to Hq * W * KEY_CHUNK fp32 numbers.
KEY_CHUNK = 8 * PAGE_TOKENS


def paged_attention(
    q: torch.Tensor,
    cache: KVPages,
    block_table: torch.Tensor,
    base: torch.Tensor,
    columns: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Return [L, W, Hq, D]: softmax(scale q k) v over keys 0..base+w for every column w.

    Columns at and past columns[l] are zero.
    """
    out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    for lane, (begin, count) in enumerate(zip(base.tolist(), columns.tolist(), strict=True)):
        if count > 0:
            attended = _attend(q[lane, :count].float(), cache, block_table[lane], begin, scale)
            out[lane, :count] = attended.to(q.dtype)
    return out


def _attend(
    q: torch.Tensor, cache: KVPages, pages: torch.Tensor, base: int, scale: float
) -> torch.Tensor:
    """Return fp32 [W, Hq, D] of one lane; the running maximum and sum are those of N-27."""
    width, heads, size = q.shape
    kv_heads = cache.keys.shape[1]
    group = heads // kv_heads
    q = q.view(width, kv_heads, group, size).permute(1, 2, 0, 3) * scale
    weighted = torch.zeros((kv_heads, group, width, size), device=q.device)
    total = torch.zeros((kv_heads, group, width, 1), device=q.device)
    highest = torch.full_like(total, -torch.inf)
    for begin in range(0, base + width, KEY_CHUNK):
        end = min(begin + KEY_CHUNK, base + width)
        keys, values = read_kv(cache, pages, begin, end)
        # Columns before `first` see none of these keys.
        first = max(0, begin - base)
        scores = _multiply(q[:, :, first:], keys.transpose(-1, -2))
        scores = _mask_later_keys(scores, base + first, begin)
        top = torch.maximum(highest[:, :, first:], scores.amax(-1, keepdim=True))
        kept = torch.exp(highest[:, :, first:] - top)
        weights = torch.exp(scores - top)
        highest[:, :, first:] = top
        total[:, :, first:] = total[:, :, first:] * kept + weights.sum(-1, keepdim=True)
        part = _multiply(weights, values)
        weighted[:, :, first:] = weighted[:, :, first:] * kept + part
    return (weighted / total).permute(2, 0, 1, 3).reshape(width, heads, size)


def _multiply(rows: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    """Return rows [Hkv, G, W, K] @ matrices [Hkv, K, N]; one product per kv head, no copies."""
    kv_heads, group, width, _ = rows.shape
    product = rows.reshape(kv_heads, group * width, -1) @ matrices
    return product.view(kv_heads, group, width, -1)


def _mask_later_keys(scores: torch.Tensor, first_query: int, first_key: int) -> torch.Tensor:
    """Set scores [..., W, N] of keys after the query to -inf; both count from the arguments."""
    width, count = scores.shape[-2:]
    if first_key + count - 1 <= first_query:
        return scores
    query = torch.arange(first_query, first_query + width, device=scores.device)
    key = torch.arange(first_key, first_key + count, device=scores.device)
    return scores.masked_fill(key > query[:, None], -torch.inf)
