"""Snapshots: the complete state of one sequence at one moment, to go on from as often as wanted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from ninfer_kernels.kv_codec import PAGE_TOKENS, KVPages, copy_pages
from ninfer_runtime.state.kv_pages import PagePool


@dataclass(frozen=True)
class Snapshot:
    """`rows` are copies of the sequence's row of every plane; `pages` hold its first `tokens`
    tokens in every cache.

    Full pages are shared with the sequence, which never writes them again; a page that is filled
    in part is a copy. The snapshot is a holder of all of them until it is dropped.
    """

    rows: tuple[torch.Tensor, ...]
    pages: tuple[int, ...]
    tokens: int


def take_snapshot(
    planes: Iterable[torch.Tensor],
    caches: Iterable[KVPages],
    pool: PagePool,
    place: int,
    pages: Sequence[int],
    tokens: int,
) -> Snapshot:
    """Return a snapshot of row `place` of `planes`, each with one row a sequence, and of the first
    `tokens` tokens in `pages`. NinferError, nothing changed, when a page is needed and none is
    free."""
    full, rest = divmod(tokens, PAGE_TOKENS)
    copies = pool.take(1 if rest else 0)
    _copy(caches, pages[full : full + len(copies)], copies)
    shared = list(pages[:full])
    pool.share(shared)
    return Snapshot(tuple(plane[place].clone() for plane in planes), (*shared, *copies), tokens)


def restore_snapshot(
    snapshot: Snapshot,
    planes: Iterable[torch.Tensor],
    caches: Iterable[KVPages],
    pool: PagePool,
    place: int,
    count: int,
) -> list[int]:
    """Write a snapshot over row `place` and return `count` pages that go on from it, of which the
    sequence is a holder. The snapshot stays as it is. NinferError, nothing changed, when too few
    pages are free."""
    full = snapshot.tokens // PAGE_TOKENS
    shared, part = list(snapshot.pages[:full]), snapshot.pages[full:]
    own = pool.take(count - full)
    pool.share(shared)
    _copy(caches, part, own[: len(part)])
    for plane, row in zip(planes, snapshot.rows, strict=True):
        plane[place].copy_(row)
    return shared + own


def drop_snapshot(snapshot: Snapshot, pool: PagePool) -> None:
    """Give the snapshot's pages back; it cannot be restored any more."""
    pool.give_back(list(snapshot.pages))


def _copy(caches: Iterable[KVPages], sources: Sequence[int], targets: Sequence[int]) -> None:
    if not sources:
        return
    for cache in caches:
        device = cache.keys.device
        lists = (
            torch.tensor(pages, dtype=torch.int32, device=device) for pages in (sources, targets)
        )
        copy_pages(cache, *lists)
