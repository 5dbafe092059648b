"""Runs of zeros in direct tensors: pages that never arrived, or rows that hold zeros.

Every bit pattern of a direct format is legal, so only where a run begins and ends tells the two
apart. A hole of a partial download begins and ends with pages of the file; a model has zeros in
whole rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.findings import Severity
from ninfer_formats.codecs.zero_runs import HOLE_BYTES, edge_runs, zero_runs
from ninfer_formats.directory import Tensor
from ninfer_formats.layouts.planes import U8
from ninfer_formats.reader import Artifact
from ninfer_tools.inspection.fault import PayloadFault

# A page that lies across objects leaves less than a page in each; shorter runs end ordinary
# tensors now and then.
_EDGE_BYTES = 512
# A page of zeros grows by the zero bytes that happen to lie beside it.
_SLACK_BYTES = 16
Run = tuple[int, int]


def check_zero_runs(artifact: Artifact, item: Tensor, flat: U8) -> list[PayloadFault]:
    """Return the holes and the other long zero runs of a direct tensor, one fault per kind.

    `flat` is the payload of `item` as uint8 and is not zero as a whole.
    """
    holes, others = [], []
    for begin, end in [*zero_runs(flat), *edge_runs(flat, _EDGE_BYTES)]:
        if find_whole_rows(item, begin, end) is None and _fills_pages(artifact, item, begin, end):
            holes.append((begin, end))
        elif end - begin >= HOLE_BYTES:
            others.append((begin, end))
    return [*_hole_fault(artifact, item, holes), *_run_fault(item, others)]


def find_whole_rows(item: Tensor, begin: int, end: int) -> tuple[int, int] | None:
    """Return the range of rows that bytes `begin` to `end` of a direct tensor exactly cover.

    None when either end lies inside a row, and for vectors, which have no rows.
    """
    if len(item.shape) < 2:
        return None
    word = nf.FORMATS[item.format].bits // 8
    row_bytes = item.bytes // item.shape[0]
    # The zeros may go into a value that is not zero, as far as its first or last bytes are.
    first, last = -(-begin // word) * word, end // word * word
    if first % row_bytes or last % row_bytes or last <= first:
        return None
    return first // row_bytes, last // row_bytes


def describe_rows(rows: tuple[int, int]) -> str:
    """Return a row range in words, both ends included."""
    first, last = rows[0], rows[1] - 1
    return f"row {first:,} is" if first == last else f"rows {first:,} to {last:,} are"


def _fills_pages(artifact: Artifact, item: Tensor, begin: int, end: int) -> bool:
    """Return whether both ends lie on pages of the file or on the ends of the object."""
    first, last = (artifact.payload.extents(item.offset + at, 1)[0] for at in (begin, end - 1))
    before, after = -first.offset % HOLE_BYTES, (last.offset + 1) % HOLE_BYTES
    on_begin = begin == 0 or before < _SLACK_BYTES
    return on_begin and (end == item.bytes or after < _SLACK_BYTES)


def _hole_fault(artifact: Artifact, item: Tensor, runs: Sequence[Run]) -> Iterator[PayloadFault]:
    if runs:
        begin, end = runs[0]
        run = artifact.payload.extents(item.offset + begin, 1)[0]
        name = artifact.payload.file_path(run.file).name
        message = (
            f"{end - begin:,} zero bytes fill pages of {name} from byte {run.offset:,} on and cut "
            "through a row: they never arrived; download or copy it again"
        )
        yield _fault(item, "error", "hole", message, runs)


def _run_fault(item: Tensor, runs: Sequence[Run]) -> Iterator[PayloadFault]:
    if runs:
        rows = find_whole_rows(item, *runs[0])
        message = f"{HOLE_BYTES} or more zero bytes in a row"
        if rows is not None:
            message = f"{describe_rows(rows)} zero as a whole"
        yield _fault(item, "notice", "zero_run", message, runs)


def _fault(
    item: Tensor, severity: Severity, kind: str, message: str, runs: Sequence[Run]
) -> PayloadFault:
    word = nf.FORMATS[item.format].bits // 8
    row = -(-runs[0][0] // word) * word // (item.bytes // item.shape[0])
    where = f"object {item.id}"
    return PayloadFault(severity, where, kind, message, item.offset, row, count=len(runs))
