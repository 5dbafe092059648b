"""Stored planes of some rows into the planes that kernels read."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from ninfer_formats.layouts.block_scale import TILE_BLOCKS, TILE_ROWS
from ninfer_formats.layouts.rows import RowView, row_divisors
from ninfer_kernels.linear import Matrix, decode_matrix
from ninfer_kernels.linear.matrix import plane_forms
from ninfer_runtime.weights.encoding import encode_rows
from ninfer_runtime.weights.transfers import Block


def place_rows(block: Block, stored: Mapping[str, torch.Tensor]) -> None:
    """Put a block where it belongs, from its planes `stored`: flat uint8 on the targets' device,
    without the divisors. Values are decoded for targets of another format."""
    view, format = block.view, block.targets[0].format
    if block.encoding is not None:
        rows = stored["values"].view(torch.bfloat16).view(view.rows, -1)
        _place_matrix(encode_rows(rows, block.encoding.format, block.encoding.divisor), block)
        return
    if view.format == format:
        for name, (shape, dtype) in plane_forms(format, view.rows, view.shape[1]).items():
            _spread(_read(view, name, stored, shape, dtype), block, name)
        return
    matrix = empty_matrix(view.format, view.rows, view.shape[1], block.targets[0].device)
    for name, plane in matrix.planes.items():
        plane.copy_(_read(view, name, stored, tuple(plane.shape), plane.dtype))
    _place_matrix(matrix, block)


def _place_matrix(matrix: Matrix, block: Block) -> None:
    if matrix.format != block.targets[0].format:
        _spread(decode_matrix(matrix), block, "values")
        return
    for name, plane in matrix.planes.items():
        _spread(plane, block, name)


def _spread(rows: torch.Tensor, block: Block, name: str) -> None:
    """Copy rows [n, ...] to the targets, run by run in turn."""
    count, run = len(block.targets), block.run
    turns = rows.reshape(-1, count, run, *rows.shape[1:])
    for i, (target, begin) in enumerate(zip(block.targets, block.begins, strict=True)):
        plane = target.planes[name][begin : begin + turns.shape[0] * run]
        plane.view(turns.shape[0], run, *plane.shape[1:]).copy_(turns[:, i])


def _read(
    view: RowView,
    name: str,
    stored: Mapping[str, torch.Tensor],
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return a plane as kernels read it, maybe a view of what is stored."""
    if name == "divisor":
        device = next(iter(stored.values())).device
        divisors = row_divisors(view)
        if (divisors == divisors[0]).all():
            # No copy from the host, which would wait for the device.
            return torch.full(shape, float(divisors[0]), dtype=dtype, device=device)
        return torch.from_numpy(divisors).to(device)
    if name == "scales":
        return untile_scales(stored[name], *shape)
    size = math.prod(shape) * dtype.itemsize
    return stored[name][:size].view(dtype).view(shape)


def empty_matrix(format: str, rows: int, columns: int, device: torch.device) -> Matrix:
    """Return a matrix whose planes hold anything: to be filled whole."""
    planes = {
        name: torch.empty(shape, dtype=dtype, device=device)
        for name, (shape, dtype) in plane_forms(format, rows, columns).items()
    }
    return Matrix(format, rows, columns, planes)


def untile_scales(tiles: torch.Tensor, rows: int, blocks: int) -> torch.Tensor:
    """Return NVFP4 scale words [rows, blocks] of whole tile rows, flat uint8 (rules LY-30..34)."""
    across = -(-blocks // TILE_BLOCKS)
    words = tiles.view(-1, across, 32, TILE_ROWS // 32, TILE_BLOCKS).permute(0, 3, 2, 1, 4)
    return words.reshape(-1, across * TILE_BLOCKS)[:rows, :blocks]
