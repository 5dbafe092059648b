"""Append to and copy within the paged cache: checks, the choice of implementation, the launch."""

from __future__ import annotations

import torch

from ninfer_kernels.kv_codec import reference
from ninfer_kernels.kv_codec.pages import KVPages
from ninfer_kernels.launch import TRITON, choose_backend

_TYPES = (torch.float32, torch.bfloat16)


def append_kv(
    keys: torch.Tensor,
    values: torch.Tensor,
    cache: KVPages,
    block_table: torch.Tensor,
    base: torch.Tensor,
    columns: torch.Tensor,
    *,
    backend: str | None = None,
) -> None:
    """Encode and write the real columns of a round into the lanes' pages.

    keys and values [L, W, Hkv, D] bf16 or fp32, D contiguous, other strides free; block_table
    int32 [L, max_pages] contiguous; base int32 [L], tokens already there; columns int32 [L], real
    columns. Column w < columns[l] goes to token base[l] + w. Padded columns, tokens past the
    block table and entries of -1 write nothing. Rule KV-5. Raises ValueError for other shapes.
    """
    lanes, width, heads, size = _check_new("keys", keys, cache)
    if _check_new("values", values, cache) != (lanes, width, heads, size):
        raise ValueError(f"values: got {list(values.shape)}, want {list(keys.shape)}")
    check_lanes(lanes, block_table, base, columns)
    if choose_backend(keys, backend) == TRITON:
        from ninfer_kernels.kv_codec import kernel

        kernel.launch_append(keys, values, cache, block_table, base, columns)
    else:
        reference.append_kv(keys, values, cache, block_table, base, columns)


def copy_pages(
    cache: KVPages,
    sources: torch.Tensor,
    targets: torch.Tensor,
    *,
    backend: str | None = None,
) -> None:
    """Copy page sources[i] over page targets[i], bit for bit, scales included.

    sources and targets int32 [n] on the cache's device; a negative entry in either skips the
    pair. No target may be named twice or be a source of another pair. Raises ValueError.
    """
    if sources.shape != targets.shape or sources.ndim != 1:
        raise ValueError(
            f"page lists: got {list(sources.shape)} and {list(targets.shape)}, want [n]"
        )
    for name, pages in (("sources", sources), ("targets", targets)):
        if pages.dtype != torch.int32 or pages.device != cache.keys.device:
            raise ValueError(
                f"{name}: got {pages.dtype} on {pages.device}, want int32 with the cache"
            )
    if choose_backend(cache.keys, backend) == TRITON:
        from ninfer_kernels.kv_codec import kernel

        kernel.launch_copy(cache, sources, targets)
    else:
        reference.copy_pages(cache, sources, targets)


def check_lanes(
    lanes: int, block_table: torch.Tensor, base: torch.Tensor, columns: torch.Tensor
) -> None:
    """Raise ValueError unless the three tables of a round are int32 and fit `lanes`."""
    for name, table in (("base", base), ("columns", columns)):
        if table.shape != (lanes,) or table.dtype != torch.int32:
            raise ValueError(f"{name}: got {list(table.shape)} {table.dtype}, want [{lanes}] int32")
    fits = block_table.ndim == 2 and block_table.shape[0] == lanes and block_table.is_contiguous()
    if not fits or block_table.dtype != torch.int32:
        got = f"{list(block_table.shape)} {block_table.dtype}"
        raise ValueError(f"block_table: got {got}, want [{lanes}, max_pages] int32 contiguous")


def _check_new(name: str, new: torch.Tensor, cache: KVPages) -> tuple[int, ...]:
    _, heads, _, size = cache.keys.shape
    if new.ndim != 4 or tuple(new.shape[2:]) != (heads, size) or new.stride(-1) != 1:
        raise ValueError(
            f"{name}: got {list(new.shape)}, want [L, W, {heads}, {size}], D contiguous"
        )
    if new.dtype not in _TYPES or new.device != cache.keys.device:
        raise ValueError(
            f"{name}: got {new.dtype} on {new.device}, want bf16 or fp32 with the cache"
        )
    return tuple(new.shape)
