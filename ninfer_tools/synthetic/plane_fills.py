"""How each plane of an encoded tensor is filled: table, legal bits per row, padding."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.layouts.block_scale import TILE_BLOCKS, TILE_ROWS
from ninfer_formats.layouts.geometry import Plane, plan_tensor
from ninfer_tools.synthetic import word_tables
from ninfer_tools.synthetic.distributions import choose_distribution, spread, tabulate


@dataclass(frozen=True)
class PlaneFill:
    """One plane: `rows` rows of `row_bytes` bytes at `offset`, of which `valid_bits` carry data.

    `table` (65536 entries of 2 or 4 bytes) maps random 16-bit words to stored ones; None keeps
    the words. `constant` replaces all random content. `tile_extent` = (N, K blocks) marks the
    swizzled NVFP4 scale plane, whose padding does not lie at the end of its rows.
    """

    name: str
    offset: int
    rows: int
    row_bytes: int
    table: np.ndarray | None = None
    valid_bits: int | None = None
    constant: bytes | None = None
    tile_extent: tuple[int, int] | None = None

    @property
    def end(self) -> int:
        return self.offset + self.rows * self.row_bytes


def plan_fills(
    format: str, layout: str, shape: tuple[int, ...], parameter: str, divisors: int = 1
) -> tuple[PlaneFill, ...]:
    """Return the fills of all planes of a tensor; errors as `geometry.plan_tensor`."""
    planes = {p.name: p for p in plan_tensor(format, layout, shape, divisors).planes}
    return _PLANNERS[layout](format, shape, parameter, planes)


def _plan_contiguous(
    format: str, shape: tuple[int, ...], parameter: str, planes: dict[str, Plane]
) -> tuple[PlaneFill, ...]:
    values = tabulate(choose_distribution(parameter, shape))
    if format == nf.BF16:
        table = word_tables.bf16_words(values)
    else:
        table = values.astype("<f4").view(np.uint32)
    return (PlaneFill("values", 0, math.prod(shape), nf.FORMATS[format].bits // 8, table),)


def _plan_row_split(
    format: str, shape: tuple[int, ...], parameter: str, planes: dict[str, Plane]
) -> tuple[PlaneFill, ...]:
    k, group = shape[1], nf.FORMATS[format].group
    rms = spread(choose_distribution(parameter, shape)) / word_tables.code_rms(format)
    # The smallest and the largest positive fp16 keep extreme shapes legal.
    scales = np.clip(word_tables.positive_scales(rms), 2.0**-24, 65504.0)
    scale_words = scales.astype("<f2").view(np.uint16)
    base_bits = 8 if format == nf.Q8 else 4
    fills = [_fill(planes["base"], word_tables.code_table(format), k * base_bits)]
    if "high" in planes:
        fills.append(_fill(planes["high"], None, k * (nf.FORMATS[format].bits - 4)))
    fills.append(_fill(planes["scale"], scale_words, -(-k // group) * 16))
    return tuple(fills)


def _plan_block_scale(
    format: str, shape: tuple[int, ...], parameter: str, planes: dict[str, Plane]
) -> tuple[PlaneFill, ...]:
    n, k = shape
    tiles, tail = planes["scales"], planes["divisor"]
    scale_table = word_tables.block_scale_table()
    divisor = np.full(tail.rows, weight_divisor(parameter, shape), "<f4").tobytes()
    return (
        _fill(planes["codes"], None, k * 4),
        replace(_fill(tiles, scale_table, None), tile_extent=(n, -(-k // 16))),
        PlaneFill("divisor", tail.offset, tail.rows, 4, constant=divisor),
    )


def _plan_row_scale(
    format: str, shape: tuple[int, ...], parameter: str, planes: dict[str, Plane]
) -> tuple[PlaneFill, ...]:
    rms = spread(choose_distribution(parameter, shape)) / word_tables.code_rms(format)
    scales = word_tables.bf16_words(word_tables.positive_scales(rms))
    codes = word_tables.code_table(format)
    return (_fill(planes["codes"], codes, shape[1] * 8), _fill(planes["scale"], scales, 16))


def weight_divisor(parameter: str, shape: tuple[int, ...]) -> float:
    """Return the NVFP4 weight divisor; equal for all matrices of the same role and K."""
    rms = word_tables.code_rms(nf.NVFP4) * word_tables.block_scale_rms()
    return float(np.float32(rms / spread(choose_distribution(parameter, shape))))


def clear_padding(fill: PlaneFill, buffer: np.ndarray, first_row: int) -> None:
    """Zero in place every bit of whole rows that carries no data; `buffer` is uint8."""
    if fill.tile_extent is not None:
        _clear_tile_padding(fill.tile_extent, buffer, fill.row_bytes, first_row)
    elif fill.valid_bits is not None and fill.valid_bits < 8 * fill.row_bytes:
        rows = buffer.reshape(-1, fill.row_bytes)
        whole, rest = divmod(fill.valid_bits, 8)
        rows[:, whole + (rest > 0) :] = 0
        if rest:
            rows[:, whole] &= (1 << rest) - 1


def _clear_tile_padding(
    extent: tuple[int, int], buffer: np.ndarray, row_bytes: int, first_row: int
) -> None:
    n, blocks = extent
    # A 512-byte tile is [n % 32, (n % 128) // 32, block % 4].
    tiles = buffer.reshape(-1, row_bytes // 512, 32, 4, TILE_BLOCKS)
    if blocks % TILE_BLOCKS:
        tiles[:, -1, :, :, blocks % TILE_BLOCKS :] = 0
    used = n - (first_row + tiles.shape[0] - 1) * TILE_ROWS
    if used < TILE_ROWS:
        row = np.arange(32)[:, None] + 32 * np.arange(4)[None, :]
        tiles[-1][:, row >= used] = 0


def _fill(plane: Plane, table: np.ndarray | None, valid_bits: int | None) -> PlaneFill:
    return PlaneFill(plane.name, plane.offset, plane.rows, plane.row_bytes, table, valid_bits)


_PLANNERS = {
    nf.CONTIGUOUS: _plan_contiguous,
    nf.ROW_SPLIT: _plan_row_split,
    nf.BLOCK_SCALE: _plan_block_scale,
    nf.ROW_SCALE: _plan_row_scale,
}
