"""Blocks of rows through staging buffers to the device, read ahead by threads."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch

from ninfer_runtime.weights.placement import place_rows
from ninfer_runtime.weights.prefetch import prefetch
from ninfer_runtime.weights.transfers import Block

STAGED_BYTES = 32 << 20
_HOST_BLOCK_BYTES = 4 << 20  # smaller ones keep torch's threads waiting for each other
_SLOTS = 6
_READERS = 4
_ALIGNMENT = 256

Progress = Callable[[int], None]


@dataclass
class Clock:
    """Seconds by kind, as `LoadRecord` counts them."""

    read: float = 0.0
    upload: float = 0.0
    prepare: float = 0.0


class HostStage:
    """Places blocks in host memory straight from the mapped file."""

    block_bytes = _HOST_BLOCK_BYTES

    def __init__(self, clock: Clock, progress: Progress) -> None:
        self._clock, self._progress = clock, progress

    def put(self, block: Block) -> None:
        begin = time.perf_counter()
        place_rows(block, {name: _view_bytes(plane) for name, plane in block.planes.items()})
        self._clock.prepare += time.perf_counter() - begin
        self._progress(block.bytes)

    def finish(self) -> None:
        """Nothing is under way."""


@dataclass
class Slot:
    """One pinned buffer. `copied` tells when the device has read what was in it, None where a
    copy is over when it returns."""

    buffer: torch.Tensor
    copied: torch.cuda.Event | None


class PinnedStage:
    """Threads read blocks into pinned buffers while earlier ones are copied to the device.

    A buffer holds as many blocks as fit and is copied at once. Copies and placements are on the
    current stream, so one buffer on the device is enough.
    """

    block_bytes = STAGED_BYTES

    def __init__(self, clock: Clock, progress: Progress, device: torch.device) -> None:
        self._clock, self._progress, self._device = clock, progress, device
        cuda = device.type == "cuda"
        self._free = [
            Slot(_allocate_pinned(STAGED_BYTES), torch.cuda.Event() if cuda else None)
            for _ in range(_SLOTS)
        ]
        self._batch: list[Block] = []
        self._batch_bytes = 0
        self._pending: deque[tuple[Future[list[int]], Slot, list[Block]]] = deque()
        self._landing = torch.empty(STAGED_BYTES, dtype=torch.uint8, device=device)
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="weights")

    def put(self, block: Block) -> None:
        """Take a block; begin to read when a buffer is full, and wait for the oldest one when all
        are taken."""
        size = _staged_bytes(block)
        if self._batch and self._batch_bytes + size > STAGED_BYTES:
            self._begin_reading()
        self._batch.append(block)
        self._batch_bytes += size

    def finish(self) -> None:
        """Wait for everything that is under way."""
        try:
            if self._batch:
                self._begin_reading()
            while self._pending:
                self._land()
        finally:
            self._threads.shutdown(cancel_futures=True)
        begin = time.perf_counter()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._clock.upload += time.perf_counter() - begin

    def _begin_reading(self) -> None:
        if not self._free:
            self._land()
        slot, batch = self._free.pop(0), self._batch
        self._batch, self._batch_bytes = [], 0
        self._pending.append((self._threads.submit(_read, batch, slot), slot, batch))

    def _land(self) -> None:
        reading, slot, batch = self._pending.popleft()
        begin = time.perf_counter()
        starts = reading.result()
        read = time.perf_counter()
        size = starts[-1]
        landing = self._landing_of(size)
        landing[:size].copy_(slot.buffer[:size], non_blocking=True)
        if slot.copied is not None:
            slot.copied.record(torch.cuda.current_stream(self._device))
        uploaded = time.perf_counter()
        begins = iter(starts)
        for block in batch:
            place_rows(
                block,
                {
                    name: landing[(at := next(begins)) : at + plane.size]
                    for name, plane in block.planes.items()
                },
            )
        self._clock.read += read - begin
        self._clock.upload += uploaded - read
        self._clock.prepare += time.perf_counter() - uploaded
        self._progress(sum(block.bytes for block in batch))
        self._free.append(slot)

    def _landing_of(self, size: int) -> torch.Tensor:
        if size > self._landing.numel():
            self._landing = torch.empty(size, dtype=torch.uint8, device=self._device)
        return self._landing


def make_stage(device: torch.device, clock: Clock, progress: Progress) -> HostStage | PinnedStage:
    if device.type == "cuda":
        return PinnedStage(clock, progress, device)
    return HostStage(clock, progress)


def _read(batch: list[Block], slot: Slot) -> list[int]:
    """Copy the planes of blocks into a slot; return where each begins, and the end."""
    planes = [plane for block in batch for plane in block.planes.values()]
    starts = list(accumulate((_aligned(plane.size) for plane in planes), initial=0))
    for plane in planes:
        prefetch(plane)
    if slot.copied is not None:
        slot.copied.synchronize()
    if starts[-1] > slot.buffer.numel():  # a tile of very wide rows
        slot.buffer = _allocate_pinned(starts[-1])
    buffer = slot.buffer.numpy()
    for start, plane in zip(starts, planes, strict=False):
        np.copyto(buffer[start : start + plane.size], plane)
    return starts


def _staged_bytes(block: Block) -> int:
    return sum(_aligned(plane.size) for plane in block.planes.values())


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _allocate_pinned(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, pin_memory=torch.cuda.is_available())


def _view_bytes(plane: np.ndarray) -> torch.Tensor:
    """Return a tensor over read-only bytes, which are not written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(plane)
