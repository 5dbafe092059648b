"""Requests that are not in the engine yet: their grammar is compiled, their pictures are seen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import torch

from ninfer_runtime.engine.request import Media, MediaSpan
from ninfer_runtime.errors import RequestError
from ninfer_runtime.models.qwen3_5.patch_grid import PatchGrid
from ninfer_runtime.models.qwen3_5.vision import VisionTower, cut_grids, run_vision
from ninfer_runtime.server.engine_process.grammar import Grammars, Matcher
from ninfer_runtime.server.engine_process.messages import Patches, PromptMedia, Submit, WantPatches
from ninfer_runtime.server.engine_process.tower_rows import TowerRows


class TowerPasses:
    """One image or video through the tower, in passes of limited size."""

    def __init__(self, tower: VisionTower, patches: torch.Tensor, grid: PatchGrid) -> None:
        self._tower, self._patches = tower, patches
        self._parts = list(cut_grids([grid]))
        self._rows: list[torch.Tensor] = []
        self._begin = 0

    def run(self) -> torch.Tensor | None:
        """Run one pass; return all rows [n, H], on the host, after the last one."""
        part = self._parts[len(self._rows)]
        end = self._begin + sum(grid.patches for grid in part)
        self._rows.append(run_vision(self._tower, self._patches[self._begin : end], part).cpu())
        self._begin = end
        return torch.cat(self._rows) if len(self._rows) == len(self._parts) else None


@dataclass
class Arrival:
    """A request on its way in. `rows` are those of its media, in order, as far as they are known;
    `passes` are those of the next one; `asked` says that its patches are on their way."""

    submit: Submit
    grammar: Future[Matcher] | None = None
    rows: list[torch.Tensor] = field(default_factory=list)
    passes: TowerPasses | None = None
    asked: bool = False

    @property
    def media(self) -> Media | None:
        """What the engine takes, once all rows are there."""
        media = self.submit.media
        if media is None:
            return None
        places, positions = (torch.from_numpy(a) for a in (media.places, media.positions))
        spans = tuple(MediaSpan(item.digest, item.begin, item.end) for item in media.items)
        return Media(torch.cat(self.rows), places, positions, spans)

    @property
    def matcher(self) -> Matcher | None:
        """The compiled grammar; RequestError when there is none to be had."""
        return None if self.grammar is None else self.grammar.result()


class Arrivals:
    """First come, first served: whoever is at the head holds up the others until it is ready, so
    that none is overtaken. One pass of the tower at a time runs between two rounds."""

    def __init__(
        self,
        tower: VisionTower | None,
        rows: TowerRows,
        grammars: Grammars | None,
        wake: Callable[[], None],
        send: Callable[[WantPatches], None],
    ) -> None:
        self._tower, self._rows, self._grammars = tower, rows, grammars
        self._wake, self._send = wake, send
        self._queue: deque[Arrival] = deque()
        self._compiler = ThreadPoolExecutor(1, "grammar")

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def head_key(self) -> int | None:
        return self._queue[0].submit.key if self._queue else None

    @property
    def workable(self) -> bool:
        """Whether `advance` can do anything now."""
        if not self._queue:
            return False
        head = self._queue[0]
        if head.grammar is not None and not head.grammar.done():
            return False
        return not head.asked

    def append(self, submit: Submit) -> None:
        arrival = Arrival(submit)
        constraint = submit.watch.constraint
        if constraint is not None:
            arrival.grammar = self._compiler.submit(_require(self._grammars).compile, constraint)
            arrival.grammar.add_done_callback(lambda _: self._wake())
        self._queue.append(arrival)

    def receive(self, patches: Patches) -> None:
        """Take the patches that were asked for, of a request that may be gone by now."""
        for arrival in self._queue:
            media, asked = arrival.submit.media, arrival.submit.key == patches.key
            if asked and media is not None and self._tower is not None:
                values = torch.from_numpy(patches.patches)
                arrival.passes = TowerPasses(self._tower, values, media.items[patches.item].grid)
                arrival.asked = False

    def remove(self, key: int) -> bool:
        """Forget a request; return whether it was here."""
        found = [arrival for arrival in self._queue if arrival.submit.key == key]
        for arrival in found:
            self._queue.remove(arrival)
        return bool(found)

    def clear(self) -> list[Submit]:
        """Forget all requests; return them."""
        gone = [arrival.submit for arrival in self._queue]
        self._queue.clear()
        return gone

    def advance(self) -> Arrival | None:
        """Do one piece of work on the head; return it, taken out, once it is ready."""
        if not self.workable:
            return None
        head = self._queue[0]
        media = head.submit.media
        if media is None or len(head.rows) == len(media.items):
            return self._queue.popleft()
        self._see(head, media)
        return None

    def _see(self, head: Arrival, media: PromptMedia) -> None:
        """Get the rows of the next picture: kept ones, or from the tower, or ask for patches."""
        item = media.items[len(head.rows)]
        rows = self._rows.get(item.digest)
        if rows is None and head.passes is None:
            head.asked = True
            self._send(WantPatches(head.submit.key, len(head.rows)))
            return
        if rows is None and head.passes is not None:
            rows = head.passes.run()
            if rows is None:
                return
            self._rows.put(item.digest, rows)
        head.passes = None
        if rows is not None:
            head.rows.append(rows)


def _require(grammars: Grammars | None) -> Grammars:
    if grammars is None:
        raise RequestError("grammars need llguidance", remedy="pip install 'ninfer[serve]'")
    return grammars
