"""Prefix reuse at the moments of a request's life: admission, chunks, end."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ninfer_runtime.config import Settings
from ninfer_runtime.engine.request import MediaSpan, Request
from ninfer_runtime.engine.sequence import Phase, Sequence
from ninfer_runtime.models.qwen3_5.model import ModelState
from ninfer_runtime.prefix.cache import Match, PrefixCache
from ninfer_runtime.prefix.lane_prefix import LanePrefix
from ninfer_runtime.prefix.reuse import ANSWER, Reuse
from ninfer_runtime.prefix.store import SnapshotStore
from ninfer_runtime.prefix.symbols import MediaNames
from ninfer_runtime.prefix.taps import leave_medium, plan_taps
from ninfer_runtime.state.kv_pages import PagePool

# A cancelled prompt with less that is new leaves nothing.
_LEAST_CANCELLED = 64


class Prefixes:
    """Owned by the engine's thread. Without device snapshots in the settings it reuses nothing."""

    def __init__(
        self, state: ModelState, settings: Settings, pool: PagePool, host_bytes: int
    ) -> None:
        self._state, self._pool = state, pool
        self.names = MediaNames()
        self.cache: PrefixCache | None = None
        if settings.snapshots:
            self.cache = PrefixCache(SnapshotStore(state, settings, pool, host_bytes))

    @property
    def gauges(self) -> dict[str, int]:
        return {} if self.cache is None else self.cache.gauges

    def ready(self, sequences: Iterable[Sequence]) -> bool:
        """Return whether another request may be admitted: not while a prompt is under way, which
        would be computed once more where it begins alike. Prompts take turns in any case."""
        return self.cache is None or all(s.phase is not Phase.PREFILL for s in sequences)

    def admit(self, sequence: Sequence, lane: int, count: int) -> bool:
        """Give a sequence `count` pages and a lane the state of the longest kept prefix of its
        prompt, or none; False, nothing changed, when too few pages can be had."""
        request = sequence.request
        if self.cache is None or not _is_known(request):
            return self._take_plain(sequence, lane, count)
        if sequence.prefix is None:
            symbols = self.names.encode(request.prompt, _spans(request))
            sequence.prefix = LanePrefix(symbols)
        match = self.cache.find(sequence.prefix.symbols)
        pages = self.cache.take_pages(match, sequence.prefix.symbols, count)
        if pages is None:
            return False
        sequence.pages = pages
        self._start(sequence, sequence.prefix, match)
        self._state.decoder.recurrent.reset(lane)
        if match.snapshot is not None:
            self.cache.restore(match.snapshot, lane, pages)
        return True

    def next_stop(self, sequence: Sequence, end: int) -> int:
        """Return where a chunk up to `end` must stop first."""
        prefix = sequence.prefix
        return end if prefix is None or not prefix.taps else min(end, prefix.taps[0][0] - 1)

    def note_chunk(self, sequence: Sequence) -> None:
        """Keep the state where a chunk stopped for that."""
        prefix = sequence.prefix
        if prefix is not None and prefix.taps and prefix.taps[0][0] - 1 == sequence.prefilled:
            depth, kind = prefix.taps.pop(0)
            self._save(sequence, prefix, prefix.symbols[:depth], kind)

    def note_end(self, sequence: Sequence, shown: int) -> None:
        """Keep the state of a sequence that leaves its lane, behind the answer's first `shown`
        tokens without a stop token: the lane stands there or few tokens later."""
        prefix = sequence.prefix
        if self.cache is None or prefix is None:
            return
        if sequence.phase is Phase.PREFILL:
            depth = sequence.prefilled + 1
            new = sequence.prefilled - prefix.reuse.cached
            if new >= _LEAST_CANCELLED and leave_medium(depth, _spans(sequence.request)) == depth:
                self._save(sequence, prefix, prefix.symbols[:depth], ANSWER)
        elif sequence.phase is Phase.RUNNING:
            told = sequence.emitted[:shown]
            if told and told[-1] in sequence.request.stops:
                told.pop()
            if self._fold(sequence, len(told)):
                answer = np.array(told, dtype=np.int64)
                self._save(sequence, prefix, np.concatenate((prefix.symbols, answer)), ANSWER)

    def forget(self, sequence: Sequence) -> None:
        """Drop whatever a sequence whose numbers were not finite went on from or left."""
        if self.cache is not None and sequence.prefix is not None:
            self.cache.drop(sequence.prefix.kept)

    def _take_plain(self, sequence: Sequence, lane: int, count: int) -> bool:
        if self.cache is not None:
            nothing = np.zeros(0, dtype=np.int64)
            pages = self.cache.take_pages(Match(None, 0, Reuse()), nothing, count)
        else:
            pages = self._pool.take(count) if count <= self._pool.free else None
        if pages is None:
            return False
        sequence.pages = pages
        self._state.decoder.recurrent.reset(lane)
        return True

    def _start(self, sequence: Sequence, prefix: LanePrefix, match: Match) -> None:
        request, cached = sequence.request, match.reuse.cached
        sequence.prefilled, prefix.reuse = cached, match.reuse
        prefix.taps = plan_taps(
            len(request.prompt), request.boundaries, _spans(request), cached, match.matched
        )
        if match.snapshot is not None:
            prefix.lineage = list(match.snapshot.blocks)
            prefix.kept = [match.snapshot]

    def _save(self, sequence: Sequence, prefix: LanePrefix, symbols: np.ndarray, kind: str) -> None:
        if self.cache is not None:
            kept = self.cache.save(symbols, kind, sequence.lane, sequence.pages, prefix.lineage)
            if kept is not None:
                prefix.kept.append(kept)

    def _fold(self, sequence: Sequence, shown: int) -> bool:
        """Make the written state that behind all but the last of the `shown` tokens; False where
        it is too late for that."""
        recurrent, lane = self._state.decoder.recurrent, sequence.lane
        back = len(sequence.emitted) - shown
        # The round of a stop token has left a record; a look at the device would wait for it.
        stopped = back == 1 and sequence.emitted[-1] in sequence.request.stops
        if back and not stopped and int(recurrent.accepted[lane]) < back:
            return False
        recurrent.accepted[lane] -= back
        recurrent.fold(lane, len(sequence.request.prompt) - 1 + shown)
        return True


def _is_known(request: Request) -> bool:
    return request.media is None or bool(request.media.spans)


def _spans(request: Request) -> tuple[MediaSpan, ...]:
    return () if request.media is None else request.media.spans


def host_bytes(limit_mib: int, free: int | None) -> int:
    """Return how much of the host snapshots may take: the limit, but half of what is free."""
    limit = limit_mib << 20
    return limit if free is None else min(limit, free // 2)
