"""Random blocks on the CPU (numpy, several threads) and on a CUDA device (torch)."""

from __future__ import annotations

import importlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from ninfer_formats.errors import UsageError
from ninfer_tools.synthetic.plane_fills import PlaneFill, clear_padding
from ninfer_tools.synthetic.seeds import seed_sequence

Item = TypeVar("Item")
Result = TypeVar("Result")

# More threads than this outrun every disk and only heat the machine.
_MAX_THREADS = 8
# Blocks of look-ups small enough that words, table and result stay in the second-level cache.
_LOOKUP_WORDS = 1 << 16


class CpuBlocks:
    """Draws blocks with SFC64 and a table look-up; numpy lets the threads run side by side."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = count_threads(threads)

    def draw(
        self, fill: PlaneFill, seed_key: tuple[int, ...], block_rows: int
    ) -> Iterator[np.ndarray]:
        """Yield the uint8 blocks of a plane, `block_rows` rows each (the last may be shorter)."""
        blocks = range(-(-fill.rows // block_rows))

        def make(index: int) -> np.ndarray:
            return draw_block(fill, seed_key, block_rows, index)

        if self._threads == 1 or len(blocks) == 1:
            yield from map(make, blocks)
        else:
            yield from map_ahead(make, blocks, self._threads)


def count_threads(threads: int | None = None) -> int:
    """Return the number of threads to draw with: the wish, or one per processor up to eight."""
    return threads or min(os.cpu_count() or 1, _MAX_THREADS)


def map_ahead(
    make: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[Result]:
    """Yield make(item) in order while at most `threads` + 1 results are under way."""
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for item in items:
            pending.append(pool.submit(make, item))
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def draw_block(
    fill: PlaneFill, seed_key: tuple[int, ...], block_rows: int, index: int
) -> np.ndarray:
    """Return the uint8 bytes of block `index` of a plane cut into `block_rows` rows each."""
    first_row = index * block_rows
    rows = min(block_rows, fill.rows - first_row)
    words = _random_words((*seed_key, index), _count_words(fill, rows))
    block = _look_up(fill.table, words).view(np.uint8)[: rows * fill.row_bytes]
    clear_padding(fill, block, first_row)
    return block


def _count_words(fill: PlaneFill, rows: int) -> int:
    """Return how many 16-bit words the rows need: one per stored value or per two bytes."""
    stored = 2 if fill.table is None else fill.table.itemsize
    return -(-rows * fill.row_bytes // stored)


def _random_words(seed_key: tuple[int, ...], count: int) -> np.ndarray:
    generator = np.random.SFC64(seed_sequence(seed_key))
    raw = generator.random_raw(-(-count // 4))
    # Little-endian words on every machine, so that the stream is the same.
    return np.asarray(raw, "<u8").view("<u2")[:count]


def _look_up(table: np.ndarray | None, words: np.ndarray) -> np.ndarray:
    if table is None:
        return words
    values = np.empty(words.size, table.dtype)
    for start in range(0, words.size, _LOOKUP_WORDS):
        part = slice(start, start + _LOOKUP_WORDS)
        # Every 16-bit word is a legal index; mode "clip" only skips the check.
        np.take(table, words[part], out=values[part], mode="clip")
    return values


class CudaBlocks:
    """Draws blocks with torch's generator on a CUDA device, copied through pinned memory."""

    # Blocks in flight: the device works ahead while the caller writes.
    _DEPTH = 4

    def __init__(self, device: str) -> None:
        try:
            torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise UsageError(
                "torch is not installed",
                want="torch for device cuda",
                remedy="pip install 'ninfer[convert]' or leave the device at cpu",
            ) from error
        if not torch.cuda.is_available():
            raise UsageError("no CUDA device is usable", got=device, remedy="use device cpu")
        self._torch = torch
        self._device = torch.device(device)
        self._generator: Any = torch.Generator(self._device)

    def draw(
        self, fill: PlaneFill, seed_key: tuple[int, ...], block_rows: int
    ) -> Iterator[np.ndarray]:
        """Yield the uint8 blocks of a plane, as `CpuBlocks.draw` but from another generator."""
        table = self._upload(fill.table)
        pending: deque[tuple[int, int, Any, Any]] = deque()
        for first in range(0, fill.rows, block_rows):
            rows = min(block_rows, fill.rows - first)
            host = self._enqueue(fill, table, (*seed_key, first // block_rows), rows)
            pending.append((first, rows, host, self._torch.cuda.current_stream().record_event()))
            if len(pending) > self._DEPTH:
                yield self._finish(fill, *pending.popleft())
        while pending:
            yield self._finish(fill, *pending.popleft())

    def _upload(self, table: np.ndarray | None) -> Any:
        if table is None:
            return None
        signed = table.view(np.int16 if table.itemsize == 2 else np.int32)
        return self._torch.from_numpy(signed.copy()).to(self._device)

    def _enqueue(self, fill: PlaneFill, table: Any, seed_key: tuple[int, ...], rows: int) -> Any:
        torch, count = self._torch, _count_words(fill, rows)
        (seed,) = seed_sequence(seed_key).generate_state(1, np.uint64)
        self._generator.manual_seed(int(seed) & (2**63 - 1))
        raw = torch.empty(-(-count // 4), dtype=torch.int64, device=self._device)
        # All 64 bits: the plain call leaves the sign bit clear.
        raw.random_(-(2**63), None, generator=self._generator)
        words = raw.view(torch.int16)[:count]
        values = words if table is None else table[words.to(torch.int32) & 0xFFFF]
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        host.copy_(values, non_blocking=True)
        return host

    def _finish(self, fill: PlaneFill, first: int, rows: int, host: Any, done: Any) -> np.ndarray:
        done.synchronize()
        block = host.numpy().view(np.uint8)[: rows * fill.row_bytes]
        clear_padding(fill, block, first)
        return block
