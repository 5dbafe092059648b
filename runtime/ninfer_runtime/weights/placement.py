"""Stored planes of some rows into the planes that kernels read."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from ninfer_formats.layouts.block_scale import TILE_BLOCKS, TILE_ROWS
from ninfer_formats.layouts.rows import RowView, row_divisors
from ninfer_kernels.linear import Matrix, decode_matrix
from ninfer_kernels.linear.matrix import plane_forms


def place_rows(view: RowView, stored: Mapping[str, torch.Tensor], target: Matrix) -> None:
    """Fill `target`, whose rows are those of `view`, from the view's planes `stored`: flat uint8
    on the target's device, without the divisors. Values are decoded for another format."""
    if view.format == target.format:
        for name, plane in target.planes.items():
            _fill(view, name, stored, plane)
        return
    matrix = empty_matrix(view.format, view.rows, view.shape[1], target.device)
    for name, plane in matrix.planes.items():
        _fill(view, name, stored, plane)
    target.planes["values"].copy_(decode_matrix(matrix))


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


def _fill(
    view: RowView, name: str, stored: Mapping[str, torch.Tensor], plane: torch.Tensor
) -> None:
    if name == "divisor":
        _fill_divisors(row_divisors(view), plane)
    elif name == "scales":
        plane.copy_(untile_scales(stored[name], *plane.shape))
    else:
        size = math.prod(plane.shape) * plane.element_size()
        plane.view(torch.uint8).view(-1).copy_(stored[name][:size])


def _fill_divisors(divisors: np.ndarray, plane: torch.Tensor) -> None:
    if (divisors == divisors[0]).all():
        plane.fill_(float(divisors[0]))  # no copy from the host, which would wait for the device
    else:
        plane.copy_(torch.from_numpy(divisors))
