"""Where snapshots lie: slots and pages of the device, then of the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from ninfer_kernels.kv_codec import copy_pages
from ninfer_runtime.config import PAGE_TOKENS, Settings
from ninfer_runtime.models.qwen3_5.model import ModelState
from ninfer_runtime.prefix.host_memory import HostMemory, allocate_host
from ninfer_runtime.prefix.snapshot import Block, PrefixSnapshot
from ninfer_runtime.prefix.transfers import Transfers
from ninfer_runtime.state.kv_pages import PagePool


class SnapshotStore:
    """Moves state; decides nothing. Device slots belong to snapshots alone, and so does the page
    behind the pool's that each has for tokens which do not fill one."""

    def __init__(
        self, state: ModelState, settings: Settings, pool: PagePool, host_bytes: int
    ) -> None:
        self.pool = pool
        self._state, self._first_tail = state, settings.pages
        self._pages = tuple(plane for cache in state.caches for plane in cache.planes)
        self.host: HostMemory = allocate_host(
            state.snapshots, self._pages, host_bytes, settings.pages
        )
        self._transfers = Transfers(settings.device)
        self.slots = list(range(settings.snapshots - 1, -1, -1))
        self.host_slots = list(range(self.host.slot_count - 1, -1, -1))
        self.host_pages = list(range(self.host.page_count - 1, -1, -1))

    def write_slot(self, slot: int, lane: int, pages: Sequence[int], tokens: int) -> None:
        """Copy the state of a lane without replay records, and its page in part filled."""
        self._transfers.fence()
        for plane, kept in zip(self._lane_planes(), self._state.snapshots, strict=True):
            kept[slot].copy_(plane[lane])
        if tokens % PAGE_TOKENS:
            self._copy_page(pages[tokens // PAGE_TOKENS], self._first_tail + slot)

    def read(self, snapshot: PrefixSnapshot, lane: int, pages: Sequence[int]) -> None:
        """Write a snapshot over a lane: its state and the page in part filled."""
        tail = snapshot.tokens // PAGE_TOKENS if snapshot.tokens % PAGE_TOKENS else None
        if snapshot.slot is not None:
            for plane, kept in zip(self._lane_planes(), self._state.snapshots, strict=True):
                plane[lane].copy_(kept[snapshot.slot])
            if tail is not None:
                self._copy_page(self._first_tail + snapshot.slot, pages[tail])
            return
        assert snapshot.host_slot is not None
        self._transfers.fetch(self.host.slots, self._lane_planes(), [snapshot.host_slot], [lane])
        if tail is not None:
            assert snapshot.host_tail is not None
            self._transfers.fetch(self.host.pages, self._pages, [snapshot.host_tail], [pages[tail]])

    def store_state(self, snapshot: PrefixSnapshot) -> None:
        """Move a snapshot's state from the device to the host, which has room for it."""
        assert snapshot.slot is not None
        snapshot.host_slot = self.host_slots.pop()
        self._transfers.store(
            self._state.snapshots, self.host.slots, [snapshot.slot], [snapshot.host_slot]
        )
        if snapshot.tokens % PAGE_TOKENS:
            snapshot.host_tail = self.host_pages.pop()
            self._transfers.store(
                self._pages, self.host.pages, [self._first_tail + snapshot.slot],
                [snapshot.host_tail],
            )  # fmt: skip
        self.slots.append(snapshot.slot)
        snapshot.slot = None

    def store_blocks(self, blocks: Sequence[Block]) -> None:
        """Move blocks that nobody else holds to the host, which has room for them."""
        new = [block for block in blocks if block.host is None]
        for block in new:
            block.host = self.host_pages.pop()
        pairs = _sort_pairs((block.device, block.host) for block in new)
        self._transfers.store(self._pages, self.host.pages, *pairs)
        for block in blocks:
            self.leave_device(block)

    def fetch_blocks(self, blocks: Sequence[Block], pages: Sequence[int]) -> None:
        """Copy blocks of the host into device pages, which are kept for them."""
        self._transfers.fence()
        pairs = _sort_pairs((block.host, page) for block, page in zip(blocks, pages, strict=True))
        self._transfers.fetch(self.host.pages, self._pages, *pairs)
        for block, page in zip(blocks, pages, strict=True):
            block.device = page
            self.pool.keep(page)

    def leave_device(self, block: Block) -> None:
        if block.device is not None:
            self.pool.let_go(block.device)
            block.device = None

    def leave_host(self, block: Block) -> None:
        if block.host is not None:
            self.host_pages.append(block.host)
            block.host = None

    def free(self, snapshot: PrefixSnapshot) -> None:
        """Give back whatever a snapshot has for itself."""
        if snapshot.slot is not None:
            self.slots.append(snapshot.slot)
        if snapshot.host_slot is not None:
            self.host_slots.append(snapshot.host_slot)
        if snapshot.host_tail is not None:
            self.host_pages.append(snapshot.host_tail)
        snapshot.slot = snapshot.host_slot = snapshot.host_tail = None

    def _lane_planes(self) -> tuple[torch.Tensor, ...]:
        return self._state.decoder.recurrent.stored_planes

    def _copy_page(self, source: int, target: int) -> None:
        for cache in self._state.caches:
            device = cache.keys.device
            sources, targets = (
                torch.tensor([page], dtype=torch.int32, device=device) for page in (source, target)
            )
            copy_pages(cache, sources, targets)


def _sort_pairs(pairs: Iterable[tuple[int | None, int | None]]) -> tuple[list[int], list[int]]:
    """Return rows and places of copies, by row, so that neighbours travel together."""
    known = sorted((row, place) for row, place in pairs if row is not None and place is not None)
    return [row for row, _ in known], [place for _, place in known]
