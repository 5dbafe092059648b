"""Tiles of a block, spread over threads, each thread with buffers of its own.

Threads of this module run each torch operation alone. Torch's own threads would meet after every
operation, which costs more than operations of this size and collapses when a core is busy.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")

# Large against the cost of starting an operation, small enough to stay near the cores.
CPU_TILE = 1 << 19
CUDA_TILE = 1 << 25
_SMALLEST_TILE = 1 << 15
# More threads than this wait for the interpreter lock most of the time.
_MOST_THREADS = 4


class Scratch:
    """Named buffers on one device; the contents last until the name is taken again.

    Views are kept: making one costs as much as a small operation, and hands the interpreter lock
    to the next thread.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._buffers: dict[tuple[str, torch.dtype], torch.Tensor] = {}
        self._views: dict[object, Any] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return an uninitialised tensor that shares memory with the last one of that name."""
        key = name, shape, dtype
        view = self._views.get(key)
        if view is None:
            count = math.prod(shape)
            view = self._views[key] = self._grow(name, count, dtype)[:count].view(shape)
        return view

    def derive(self, key: object, make: Callable[[], Result]) -> Result:
        """Return what `make` made of taken tensors when it was first called for `key`."""
        found = self._views.get(key)
        if found is None:
            made = make()
            found = self._views[key] = made
        return found

    def _grow(self, name: str, count: int, dtype: torch.dtype) -> torch.Tensor:
        kept = self._buffers.get((name, dtype))
        if kept is None or kept.numel() < count:
            # Old views would keep the old memory.
            self._views.clear()
            kept = torch.empty(count, dtype=dtype, device=self.device)
            self._buffers[name, dtype] = kept
        return kept


class TileWorkers:
    """Runs work over tiles: on `threads` threads for the CPU, one by one for CUDA.

    Serves any number of encoders one after the other; one call at a time.
    """

    def __init__(self, device: str | torch.device = "cpu", threads: int | None = None) -> None:
        """`threads` is what torch uses, 4 at most, by default."""
        self.device = torch.device(device)
        cpu = self.device.type == "cpu"
        known = threads or min(torch.get_num_threads(), _MOST_THREADS)
        self.threads = known if cpu else 1
        self.tile = CPU_TILE if cpu else CUDA_TILE
        self._scratches = [Scratch(self.device) for _ in range(self.threads)]
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def quiet_torch(self) -> Iterator[None]:
        """Keep torch to one thread in the calling thread and in workers that start meanwhile."""
        kept = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(kept)

    def run(
        self,
        count: int,
        unit: int,
        work: Callable[[slice, Scratch], Result],
        tile: int | None = None,
    ) -> list[Result]:
        """Return `work` of slices that cover `count` values, in order.

        Slices hold multiples of `unit` values, about `tile` of them or less.
        """
        tiles = self._cut(count, unit, tile or self.tile)
        if self.threads == 1 or len(tiles) == 1:
            return [work(part, self._scratches[0]) for part in tiles]
        results: list[Any] = [None] * len(tiles)
        order = itertools.count()

        def take_tiles(scratch: Scratch) -> None:
            while (index := next(order)) < len(tiles):
                results[index] = work(tiles[index], scratch)

        pool = self._pool = self._pool or self._start_pool()
        for done in [pool.submit(take_tiles, scratch) for scratch in self._scratches]:
            done.result()
        return results

    def _cut(self, count: int, unit: int, tile: int) -> list[slice]:
        even = -(-count // self.threads)
        step = max(_SMALLEST_TILE, min(tile, even)) if self.threads > 1 else tile
        step = max(1, step // unit) * unit
        return [slice(at, min(at + step, count)) for at in range(0, count, step)]

    def _start_pool(self) -> ThreadPoolExecutor:
        pool = ThreadPoolExecutor(self.threads, "encode")
        started = threading.Barrier(self.threads + 1)

        def start() -> None:
            # A thread adopts the setting of the moment on its first use of torch, for good.
            torch.get_num_threads()
            started.wait()

        with self.quiet_torch():
            for _ in self._scratches:
                pool.submit(start)
            started.wait()
        return pool
