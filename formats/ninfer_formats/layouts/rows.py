"""Row ranges of an encoded tensor: views, standalone copies, and joining (rules LY-50..55)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import NumericError, UsageError
from ninfer_formats.layouts import block_scale
from ninfer_formats.layouts.geometry import plan_tensor
from ninfer_formats.layouts.planes import U8, Buffer, Planes, blank_tensor, split_planes


@dataclass(frozen=True)
class RowView:
    """The planes of some rows of a tensor, each exactly as in a standalone tensor of those rows.

    `planes` holds uint8 [rows, row_bytes] under the plane names of the geometry; `copied` tells
    for each plane whether it is a copy (True) or a view of the source buffer.
    """

    format: str
    layout: str
    shape: tuple[int, ...]
    planes: Planes
    copied: dict[str, bool]

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def divisors(self) -> NDArray[np.float32]:
        """Divisors float32 [D] of an NVFP4 tensor; empty for every other format."""
        plane = self.planes.get("divisor", np.empty((0, 4), np.uint8))
        return block_scale.unpack_divisors(plane)


def view_tensor(
    buffer: Buffer, format: str, layout: str, shape: tuple[int, ...], divisors: int = 1
) -> RowView:
    """Return the view of a whole tensor; raises ArtifactError as `plan_tensor`, or for its size."""
    planes = split_planes(buffer, plan_tensor(format, layout, shape, divisors))
    return RowView(format, layout, shape, planes, dict.fromkeys(planes, False))


def cut_rows(view: RowView, begin: int, end: int) -> RowView:
    """Return rows `begin` to `end` of a view.

    Only NVFP4 scales are ever copied, when the cut does not fall on tiles of 128 rows. Raises
    UsageError for a range outside the tensor, and NumericError when the rows partly cover NVFP4
    stacks of different divisors.
    """
    check_range(view, begin, end)
    planes = {name: rows[begin:end] for name, rows in view.planes.items()}
    copied = dict(view.copied)
    if view.layout == nf.BLOCK_SCALE:
        aligned = begin % block_scale.TILE_ROWS == 0 and (
            end % block_scale.TILE_ROWS == 0 or end == view.rows
        )
        planes["scales"] = _cut_tiles(view, begin, end, aligned)
        planes["divisor"] = _cut_divisors(view.planes["divisor"], view.rows, begin, end)
        copied["scales"] |= not aligned
    shape = (end - begin, *view.shape[1:]) if view.shape else ()
    return RowView(view.format, view.layout, shape, planes, copied)


def check_range(view: RowView, begin: int, end: int) -> None:
    """Raise UsageError unless 0 <= begin < end <= rows."""
    if not 0 <= begin < end <= view.rows:
        raise UsageError(
            "row range is outside the tensor",
            got=f"{begin}..{end}",
            want=f"0 <= begin < end <= {view.rows}",
        )


def pack_view(view: RowView) -> U8:
    """Return the bytes of a standalone tensor of the viewed rows, gaps zeroed."""
    stacks = max(1, len(view.divisors))
    flat, planes = blank_tensor(plan_tensor(view.format, view.layout, view.shape, stacks))
    for name, rows in view.planes.items():
        planes[name][:] = rows
    return flat


def join_views(parts: Sequence[RowView]) -> U8:
    """Return the bytes of one tensor holding the rows of `parts` in order.

    Raises UsageError when there is no part, or format, layout or row shape differ; NumericError
    when NVFP4 divisors are not equal bit for bit.
    """
    first = _check_parts(parts)
    shape = (sum(part.rows for part in parts), *first.shape[1:])
    flat, planes = blank_tensor(plan_tensor(first.format, first.layout, shape))
    begin = 0
    for part in parts:
        _place(part, planes, begin)
        begin += part.rows
    return flat


def row_chunks(view: RowView, begin: int, end: int, chunk_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield row ranges of about `chunk_bytes` encoded bytes, cut on NVFP4 tiles where possible."""
    row_bytes = sum(
        rows.shape[1] for name, rows in view.planes.items() if name not in ("scales", "divisor")
    )
    step = max(1, chunk_bytes // row_bytes)
    if view.layout == nf.BLOCK_SCALE:
        step = -(-step // block_scale.TILE_ROWS) * block_scale.TILE_ROWS
    while begin < end:
        stop = min(end, (begin // step + 1) * step)
        yield begin, stop
        begin = stop


def row_divisors(view: RowView) -> NDArray[np.float32]:
    """Return the divisor of every row of an NVFP4 view, float32 [N]."""
    divisors = view.divisors
    return np.repeat(divisors, view.rows // len(divisors))


def scale_groups(view: RowView) -> int:
    """Return the logical NVFP4 blocks of one row."""
    return -(-view.shape[1] // block_scale.BLOCK)


def _cut_tiles(view: RowView, begin: int, end: int, aligned: bool) -> U8:
    tiles = view.planes["scales"]
    if aligned:
        return tiles[begin // block_scale.TILE_ROWS : -(-end // block_scale.TILE_ROWS)]
    return block_scale.swizzle(block_scale.gather_scales(tiles, begin, end, scale_groups(view)))


def _cut_divisors(plane: U8, n: int, begin: int, end: int) -> U8:
    stack = n // len(plane)
    chosen = plane[begin // stack : (end - 1) // stack + 1]
    if len(chosen) == 1 or (begin % stack == 0 and end % stack == 0):
        return chosen
    if (chosen == chosen[0]).all():
        return chosen[:1]
    raise NumericError(
        "rows cover parts of NVFP4 stacks whose divisors differ",
        where=f"rows {begin}..{end}",
        want=f"whole stacks of {stack} rows",
    )


def _check_parts(parts: Sequence[RowView]) -> RowView:
    if not parts:
        raise UsageError("nothing to join")
    first = parts[0]
    for index, part in enumerate(parts):
        got, want = (
            (item.format, item.layout, item.shape[1:], bool(item.shape)) for item in (part, first)
        )
        if got != want or not part.shape:
            raise UsageError(
                "rows of different kind cannot be joined",
                where=f"part {index}",
                got=f"{part.format} {list(part.shape)}",
                want=f"{first.format} {list(first.shape)}",
            )
        _check_divisors(index, part, first)
    return first


def _check_divisors(index: int, part: RowView, first: RowView) -> None:
    if part.layout != nf.BLOCK_SCALE:
        return
    words = part.planes["divisor"]
    if (words != first.planes["divisor"][0]).any():
        raise NumericError(
            "NVFP4 parts have different divisors",
            where=f"part {index}",
            got=", ".join(str(d) for d in part.divisors),
            want=first.divisors[0],
            remedy="keep the parts as separate tensors, or quantise them again with one divisor",
        )


def _place(part: RowView, planes: Planes, begin: int) -> None:
    for name, rows in part.planes.items():
        if name == "divisor":
            planes[name][:] = rows[0]
        elif name != "scales":
            planes[name][begin : begin + part.rows] = rows
        elif begin % block_scale.TILE_ROWS == 0:
            first = begin // block_scale.TILE_ROWS
            planes[name][first : first + len(rows)] = rows
        else:
            words = block_scale.gather_scales(rows, 0, part.rows, scale_groups(part))
            block_scale.scatter_scales(planes[name], begin, words)
