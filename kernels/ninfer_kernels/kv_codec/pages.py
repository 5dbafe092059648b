"""Storage of one layer's keys and values in pages of 64 tokens; KV-1 to KV-4 of kv-codecs.md."""

from __future__ import annotations

from dataclasses import dataclass

import torch

PAGE_TOKENS = 64
KV_KINDS = ("fp32", "bf16", "fp8", "int8")

_STORAGE = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp8": torch.uint8,
    "int8": torch.int8,
}
_SCALED = ("fp8", "int8")


@dataclass(frozen=True)
class KVPages:
    """Keys and values [pages, Hkv, 64, D] of one layer, and the row scales of scaled kinds.

    `kind` is fp32, bf16, fp8 (E4M3FN words in uint8) or int8. fp8 and int8 carry fp16 scales
    [pages, Hkv, 64], one a (page, head, token), for keys and for values; the others None.
    All tensors are contiguous.
    """

    kind: str
    keys: torch.Tensor
    values: torch.Tensor
    key_scales: torch.Tensor | None = None
    value_scales: torch.Tensor | None = None

    @property
    def planes(self) -> tuple[torch.Tensor, ...]:
        """Every tensor of the cache that exists, page first."""
        planes = (self.keys, self.values, self.key_scales, self.value_scales)
        return tuple(plane for plane in planes if plane is not None)

    @property
    def byte_count(self) -> int:
        """Bytes of all pages."""
        return sum(plane.numel() * plane.element_size() for plane in self.planes)


def allocate_pages(
    kind: str, pages: int, kv_heads: int, head_dim: int, device: torch.device | str
) -> KVPages:
    """Return `pages` zeroed pages. Raises ValueError for an unknown kind."""
    storage = _storage(kind)
    shape = (pages, kv_heads, PAGE_TOKENS, head_dim)

    def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    keys, values = zeros(shape, storage), zeros(shape, storage)
    if kind not in _SCALED:
        return KVPages(kind, keys, values)
    return KVPages(kind, keys, values, *(zeros(shape[:3], torch.float16) for _ in range(2)))


def bytes_per_token(kind: str, kv_heads: int, head_dim: int) -> int:
    """Return the bytes that one token takes in one layer: keys, values and scales."""
    row = head_dim * _storage(kind).itemsize + (2 if kind in _SCALED else 0)
    return 2 * kv_heads * row


def _storage(kind: str) -> torch.dtype:
    if kind not in _STORAGE:
        raise ValueError(f"KV kind: got {kind}, want one of {', '.join(KV_KINDS)}")
    return _STORAGE[kind]
