"""Carry a conversion plan out: rows in, encoded bytes to their places, figures to the journal."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ninfer_formats.errors import NinferError, NumericError
from ninfer_formats.inventories.packing import Parent
from ninfer_formats.output_target import OutputTarget
from ninfer_tools.convert.devices import Device, choose_device
from ninfer_tools.convert.error_figures import ErrorSample, ErrorSums
from ninfer_tools.convert.ordered_pool import OrderedPool
from ninfer_tools.convert.packing import ParentRows, Piece, plane_gaps
from ninfer_tools.convert.plan import ConversionPlan
from ninfer_tools.convert.progress import Advance, Announce
from ninfer_tools.convert.rules import IMPORT
from ninfer_tools.convert.workplace import ResumableWriter, Workplace, open_workplace
from ninfer_tools.convert.write_behind import WriteBehind

# Finished objects are made durable and journalled after so many bytes or seconds.
SYNC_BYTES = 64 << 20
SYNC_SECONDS = 5.0
RUNS = "crc32"
# Gets the records of all objects and the artifact where it was written; returns the files that are
# published with it.
Finish = Callable[[Mapping[str, Any], Path], Mapping[str, bytes]]
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def execute(
    plan: ConversionPlan,
    target: OutputTarget,
    *,
    resume: bool,
    device: str,
    advance: Advance,
    announce: Announce,
    finish: Finish,
) -> None:
    """Write the artifact and publish it together with the files that `finish` returns.

    The record of an object has `seconds`, `crc32` (V-171) and, where values were rounded, `errors`.
    Raises NumericError naming tensor and row for NaN and infinity, NinferError when the disk fills
    up.
    """
    chosen = choose_device(device)
    try:
        with (
            open_workplace(target, plan.digest, resume) as workplace,
            WriteBehind(chosen.waiting_bytes) as behind,
            OrderedPool(chosen.readers, 1, "read-ahead") as ahead,
        ):
            run = _Run(plan, workplace, chosen, (ahead, behind), advance, announce)
            run.write_literals()
            run.write_parents()
            for name, content in finish(dict(workplace.journal.done), workplace.entry).items():
                workplace.publication.add(name, content)
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        raise NinferError(
            f"writing stopped: {error.strerror}", path=target.path,
            remedy="free disk space, then run the same command with --resume",
        ) from error  # fmt: skip


class _Run:
    """Encodes on the calling thread, reads ahead of it on others, and writes behind it: figures,
    bytes, durability and journal are the jobs of one thread, in this order for every object."""

    def __init__(
        self,
        plan: ConversionPlan,
        workplace: Workplace,
        device: Device,
        lines: tuple[OrderedPool, WriteBehind],
        advance: Advance,
        announce: Announce,
    ) -> None:
        self._plan, self._workplace, self._device = plan, workplace, device
        self._ahead, self._behind = lines
        self._advance, self._announce = advance, announce
        self._writer = ResumableWriter(plan.written, workplace.publication, advance)
        self._pending: dict[str, Any] = {}
        self._pending_bytes, self._synced = 0, time.monotonic()

    def write_literals(self) -> None:
        for id, data in self._plan.literals.items():
            self._writer.write(id, data)

    def write_parents(self) -> None:
        done = dict(self._workplace.journal.done)
        for id, parent in self._plan.parents.items():
            if id in done and self._is_kept(id, done[id]):
                self._behind.put(partial(self._skip, parent))
            elif id not in self._plan.literals:
                self._announce(parent.ranges[0].parameter)
                begin = time.monotonic()
                errors = self._write_parent(parent)
                seconds = round(time.monotonic() - begin, 3)
                self._behind.put(partial(self._close, parent, seconds, errors))
        self._behind.drain()
        self._sync()
        self._writer.check_complete()

    def _write_parent(self, parent: Parent) -> ErrorSums | None:
        rows = ParentRows(parent, [self._plan.sources[r.parameter] for r in parent.ranges])
        method = self._plan.assigned[parent.ranges[0].parameter].method
        if method == IMPORT:
            for _, pieces in self._ahead.stream(rows.import_pieces, rows.blocks()):
                self._put(parent, pieces)
            self._put(parent, plane_gaps(parent))
            return None
        return self._encode(parent, rows, method)

    def _encode(self, parent: Parent, rows: ParentRows, method: str) -> ErrorSums | None:
        from ninfer_tools.convert.encoders import RowEncoder

        encoder = RowEncoder(parent.format, parent.shape, method, self._device.workers)
        sample = None if rows.is_lossless else ErrorSample(parent)
        read = partial(self._device.read, rows, method)
        blocks = list(rows.blocks(self._device.block_values))
        try:
            encoder.prepare(lambda: (b.staged for _, b in self._ahead.stream(read, blocks)))
            for (begin, _), block in self._ahead.stream(read, blocks):
                pieces = encoder.encode(block.staged, begin)
                if sample is not None:
                    job = partial(sample.add, begin, block.values, pieces, encoder.divisor)
                    self._behind.put(job, block.values.nbytes)
                self._put(parent, pieces)
        except NumericError as error:
            for begin, end in rows.blocks():
                rows.check(begin, end)
            error.where = f"{parent.ranges[0].parameter}: {error.where}"
            raise
        self._put(parent, encoder.finish())
        return sample.sums if sample else None

    def _put(self, parent: Parent, pieces: Iterable[Piece]) -> None:
        for offset, data in pieces:
            job = partial(self._writer.write, parent.id, np.ascontiguousarray(data), offset)
            self._behind.put(job, data.nbytes)

    def _is_kept(self, id: str, record: Mapping[str, Any]) -> bool:
        if self._writer.is_kept(id, record.get(RUNS)):
            return True
        print(f"note: what was written of {id} is damaged; it is written again", file=sys.stderr)
        return False

    def _skip(self, parent: Parent) -> None:
        self._writer.skip(parent.id)
        self._advance(parent.bytes)

    def _close(self, parent: Parent, seconds: float, errors: ErrorSums | None) -> None:
        record: dict[str, Any] = {"seconds": seconds, RUNS: self._writer.runs(parent.id)}
        record["errors"] = errors.as_record() if errors else None
        self._finish(parent, record)

    def _finish(self, parent: Parent, record: dict[str, Any]) -> None:
        self._pending[parent.id] = record
        self._pending_bytes += parent.bytes
        late = time.monotonic() - self._synced >= SYNC_SECONDS
        if late or self._pending_bytes >= SYNC_BYTES:
            self._sync()

    def _sync(self) -> None:
        self._workplace.sync([file.name for file in self._plan.written.files])
        self._workplace.journal.add(self._pending)
        self._pending, self._pending_bytes = {}, 0
        self._synced = time.monotonic()
