"""Carry a conversion plan out: rows in, encoded bytes to their places, figures to the journal."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.errors import NinferError, NumericError
from ninfer_formats.inventories.packing import Parent
from ninfer_formats.output_target import OutputTarget
from ninfer_tools.convert.error_figures import ErrorSample
from ninfer_tools.convert.packing import ParentRows, plane_gaps
from ninfer_tools.convert.plan import ConversionPlan
from ninfer_tools.convert.progress import Advance, Announce
from ninfer_tools.convert.rules import IMPORT
from ninfer_tools.convert.workplace import ResumableWriter, Workplace, open_workplace

if TYPE_CHECKING:
    from ninfer_tools.convert.encoders import RowEncoder, TileWorkers

# Finished objects are made durable and journalled after so many bytes or seconds.
SYNC_BYTES = 64 << 20
SYNC_SECONDS = 5.0
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def execute(
    plan: ConversionPlan,
    target: OutputTarget,
    *,
    resume: bool,
    device: str,
    advance: Advance,
    announce: Announce,
) -> dict[str, Any]:
    """Write and publish the artifact; return the record of every parent by object id.

    A record has `seconds` and, where values were rounded, `errors`. Raises NumericError naming
    tensor and row for NaN and infinity, NinferError when the disk fills up.
    """
    from ninfer_tools.convert.encoders import TileWorkers

    try:
        with open_workplace(target, plan.digest, resume) as workplace:
            run = _Run(plan, workplace, TileWorkers(device), advance, announce)
            run.write_literals()
            run.write_parents()
            return dict(workplace.journal.done)
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        raise NinferError(
            f"writing stopped: {error.strerror}", path=target.path,
            remedy="free disk space, then run the same command with --resume",
        ) from error  # fmt: skip


class _Run:
    def __init__(
        self,
        plan: ConversionPlan,
        workplace: Workplace,
        workers: TileWorkers,
        advance: Advance,
        announce: Announce,
    ) -> None:
        self._plan, self._workplace, self._workers = plan, workplace, workers
        self._advance, self._announce = advance, announce
        self._writer = ResumableWriter(plan.written, workplace.publication, advance)
        self._pending: dict[str, Any] = {}
        self._pending_bytes, self._synced = 0, time.monotonic()

    def write_literals(self) -> None:
        for id, data in self._plan.literals.items():
            self._writer.write(id, data)

    def write_parents(self) -> None:
        done = self._workplace.journal.done
        for id, parent in self._plan.parents.items():
            if id in done:
                self._writer.skip(id)
                self._advance(parent.bytes)
            elif id not in self._plan.literals:
                self._announce(parent.ranges[0].parameter)
                begin = time.monotonic()
                errors = self._write_parent(parent)
                seconds = round(time.monotonic() - begin, 3)
                self._finish(parent, {"seconds": seconds, "errors": errors})
        self._sync()
        self._writer.check_complete()

    def _write_parent(self, parent: Parent) -> dict[str, Any] | None:
        rows = ParentRows(parent, [self._plan.sources[r.parameter] for r in parent.ranges])
        method = self._plan.assigned[parent.ranges[0].parameter].method
        if method == IMPORT:
            for begin, end in rows.blocks():
                for offset, data in rows.import_pieces(begin, end):
                    self._writer.write(parent.id, data, offset)
            for offset, data in plane_gaps(parent):
                self._writer.write(parent.id, data, offset)
            return None
        return self._encode(parent, rows, method)

    def _encode(self, parent: Parent, rows: ParentRows, method: str) -> dict[str, Any] | None:
        from ninfer_tools.convert.encoders import RowEncoder

        encoder = RowEncoder(parent.format, parent.shape, method, self._workers)
        sample = None if rows.is_lossless else ErrorSample(parent)
        with_check = method == "cast"
        try:
            encoder.prepare(lambda: (rows.read(begin, end) for begin, end in rows.blocks()))
            for begin, end in rows.blocks():
                if with_check:
                    rows.check(begin, end)
                self._encode_block(encoder, parent, begin, rows.read(begin, end), sample)
        except NumericError as error:
            for begin, end in rows.blocks():
                rows.check(begin, end)
            error.where = f"{parent.ranges[0].parameter}: {error.where}"
            raise
        for piece in encoder.finish():
            self._writer.write(parent.id, piece.data, piece.offset)
        return sample.sums.as_record() if sample else None

    def _encode_block(
        self,
        encoder: RowEncoder,
        parent: Parent,
        begin: int,
        block: NDArray[Any],
        sample: ErrorSample | None,
    ) -> None:
        pieces = encoder.encode(block, begin)
        for piece in pieces:
            self._writer.write(parent.id, np.ascontiguousarray(piece.data), piece.offset)
        if sample is not None:
            sample.add(begin, block, pieces, encoder.divisor)

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
