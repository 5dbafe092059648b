"""Which snapshots are kept, where, and which one a prompt goes on from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ninfer_runtime.config import PAGE_TOKENS
from ninfer_runtime.prefix.reuse import Reuse
from ninfer_runtime.prefix.snapshot import Block, PrefixSnapshot
from ninfer_runtime.prefix.store import SnapshotStore
from ninfer_runtime.prefix.tree import PrefixTree

# Snapshots of fewer tokens are soon made again: all but the newest few go before any other.
CHEAP_TOKENS = 256
_CHEAP_KEPT = 6


@dataclass(frozen=True)
class Match:
    """What a prompt can go on from: the deepest snapshot, if any. `matched` symbols agree with
    some prompt that is kept."""

    snapshot: PrefixSnapshot | None
    matched: int
    reuse: Reuse


class PrefixCache:
    """Least recently used first, snapshots leave the device for the host, and the host for good.
    Pages leave the device only when a request needs them."""

    def __init__(self, store: SnapshotStore) -> None:
        self.store, self._pool = store, store.pool
        self.tree = PrefixTree()
        self.snapshots: set[PrefixSnapshot] = set()
        self.blocks: set[Block] = set()
        self._clock = 0
        self._pinned: PrefixSnapshot | None = None
        self.counts = dict.fromkeys(
            ("hits", "misses", "cached_tokens", "saved", "evicted_to_host", "evicted",
             "pages_to_host", "pages_from_host"), 0,
        )  # fmt: skip

    def find(self, symbols: np.ndarray) -> Match:
        """Look up a prompt; nothing changes."""
        walk = self.tree.walk(symbols)
        diverged = walk.matched if walk.differs else None
        if not walk.snapshots:
            return Match(None, walk.matched, Reuse(diverged=diverged))
        best = walk.snapshots[-1]
        return Match(best, walk.matched, Reuse(best.kind, best.tokens, diverged))

    def take_pages(self, match: Match, symbols: np.ndarray, count: int) -> list[int] | None:
        """Return `count` pages for a lane, the first of them with the blocks of the match; None,
        nothing changed, when lanes hold too many."""
        blocks = match.snapshot.blocks if match.snapshot is not None else ()
        shared = [block.device for block in blocks if block.device is not None]
        self._pool.share(shared)
        need = count - len(shared)
        self._pinned = match.snapshot
        enough = self._make_room(need)
        self._pinned = None
        if not enough:
            self._pool.give_back(shared)
            return None
        own = self._pool.take(need)
        self._note(match, symbols)
        absent = [block for block in blocks if block.device is None]
        fetched, own = own[: len(absent)], own[len(absent) :]
        self.store.fetch_blocks(absent, fetched)
        self.counts["pages_from_host"] += len(absent)
        return [block.device for block in blocks if block.device is not None] + own

    def restore(self, snapshot: PrefixSnapshot, lane: int, pages: list[int]) -> None:
        """Write a snapshot's state over a lane whose pages came from `take_pages`."""
        self.store.read(snapshot, lane, pages)

    def save(
        self, symbols: np.ndarray, kind: str, lane: int, pages: list[int], lineage: list[Block]
    ) -> PrefixSnapshot | None:
        """Keep the state of a lane behind all of `symbols` but the last; None when there is no
        room. `lineage` are blocks of the lane's first pages; it grows by what is new."""
        node = self.tree.reach(symbols)
        if node.snapshot is not None:
            self._touch((node.snapshot,))
            return node.snapshot
        slot = self._take_slot()
        if slot is None:
            self.tree.prune(node)
            return None
        tokens = symbols.size - 1
        self.store.write_slot(slot, lane, pages, tokens)
        # Making room may have reshaped the tree.
        node = self.tree.reach(symbols)
        blocks = self._hold_blocks(pages, tokens // PAGE_TOKENS, lineage)
        node.snapshot = PrefixSnapshot(node, tokens, kind, blocks, slot)
        self.snapshots.add(node.snapshot)
        self._touch((node.snapshot,))
        self.counts["saved"] += 1
        kept = node.snapshot
        if not self.store.slots and self.store.host.slot_count:
            # The copy to the host is done by the time the next snapshot needs the slot.
            self._leave_slot()
        return kept

    def drop(self, snapshots: Iterable[PrefixSnapshot]) -> None:
        """Forget snapshots, such as those whose numbers are not finite."""
        for snapshot in snapshots:
            self._drop(snapshot)

    @property
    def gauges(self) -> dict[str, int]:
        """Counts since the start, and what is there now."""
        on_host = self.store.host.slot_count - len(self.store.host_slots)
        return {
            **self.counts,
            "snapshots": len(self.snapshots),
            "snapshots_on_device": len(self.snapshots) - on_host,
            "snapshots_on_host": on_host,
            "pages": self._pool.kept,
            "pages_on_host": self.store.host.page_count - len(self.store.host_pages),
        }

    def _note(self, match: Match, symbols: np.ndarray) -> None:
        """Count a lookup, and mark what it used."""
        self.counts["hits" if match.snapshot is not None else "misses"] += 1
        if match.snapshot is None:
            return
        self.counts["cached_tokens"] += match.snapshot.tokens
        way = self.tree.walk(symbols).snapshots
        self._touch([s for s in way if s.common and s is not match.snapshot])
        self._touch((match.snapshot,))

    def _touch(self, snapshots: Iterable[PrefixSnapshot]) -> None:
        for snapshot in snapshots:
            self._clock += 1
            snapshot.used = self._clock
            for block in snapshot.blocks:
                block.used = self._clock

    def _hold_blocks(self, pages: list[int], count: int, lineage: list[Block]) -> tuple[Block, ...]:
        """Return the blocks of a lane's first `count` pages, each with one use more."""
        lineage += [Block(index) for index in range(len(lineage), count)]
        blocks = tuple(lineage[:count])
        for block, page in zip(blocks, pages, strict=False):
            if block.device is None:
                block.device = page
                self._pool.keep(page)
            block.uses += 1
        self.blocks.update(blocks)
        return blocks

    def _take_slot(self) -> int | None:
        """Return a free device slot; the least recently used snapshot leaves one."""
        if not self.store.slots:
            self._leave_slot()
        return self.store.slots.pop() if self.store.slots else None

    def _leave_slot(self) -> None:
        resident = [s for s in self.snapshots if s.slot is not None]
        oldest = min(resident, key=lambda s: s.used, default=None)
        if oldest is not None:
            self._move_to_host(oldest)

    def _move_to_host(self, snapshot: PrefixSnapshot) -> None:
        """Take a snapshot's state off the device; it is dropped before any used more lately."""
        tail = bool(snapshot.tokens % PAGE_TOKENS)
        while not self.store.host_slots or len(self.store.host_pages) < tail:
            if tail and self.store.host_slots and self._free_copies():
                continue
            oldest = self._oldest()
            if oldest is None or oldest is snapshot or not self.store.host.slot_count:
                self._evict(snapshot)
                return
            self._evict(oldest)
        self.store.store_state(snapshot)
        self.counts["evicted_to_host"] += 1

    def _make_room(self, need: int) -> bool:
        """Have `need` pages of the pool free; False, nothing changed, when lanes hold too many."""
        if self._pool.available < need:
            return False
        while self._pool.free < need:
            idle = sorted(self._idle_blocks(), key=lambda block: (block.used, -block.index))
            leaving = idle[: need - self._pool.free]
            new = sum(block.host is None for block in leaving)
            if new <= len(self.store.host_pages):
                self.store.store_blocks(leaving)
                self.counts["pages_to_host"] += new
            elif not self._free_copies():
                oldest = self._oldest()
                assert oldest is not None, "idle pages belong to snapshots"
                self._evict(oldest)
        return True

    def _idle_blocks(self) -> list[Block]:
        """Return the blocks on the device that no lane holds."""
        is_idle = self._pool.is_idle
        return [b for b in self.blocks if b.device is not None and is_idle(b.device)]

    def _free_copies(self) -> bool:
        """Free host pages whose content is on the device too; return whether there were any."""
        twice = [b for b in self.blocks if b.device is not None and b.host is not None]
        for block in twice:
            self.store.leave_host(block)
        return bool(twice)

    def _oldest(self) -> PrefixSnapshot | None:
        """Return the snapshot to be dropped next."""
        others = [s for s in self.snapshots if s is not self._pinned]
        cheap = [s for s in others if s.tokens < CHEAP_TOKENS]
        leaving = cheap if len(cheap) > _CHEAP_KEPT else others
        return min(leaving, key=lambda s: s.used, default=None)

    def _evict(self, snapshot: PrefixSnapshot) -> None:
        self.counts["evicted"] += 1
        self._drop(snapshot)

    def _drop(self, snapshot: PrefixSnapshot) -> None:
        if snapshot.dropped:
            return
        snapshot.dropped = True
        self.snapshots.remove(snapshot)
        self.store.free(snapshot)
        for block in snapshot.blocks:
            block.uses -= 1
            if not block.uses:
                self.store.leave_device(block)
                self.store.leave_host(block)
                self.blocks.discard(block)
        snapshot.node.snapshot = None
        self.tree.prune(snapshot.node)
