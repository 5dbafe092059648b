"""Places of patches in an image or video, in the order the vision tower reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch


class PatchGrid(NamedTuple):
    """Patches of one image (frames 1) or video; `rows` and `columns` count patches."""

    frames: int
    rows: int
    columns: int

    @property
    def patches(self) -> int:
        return self.frames * self.rows * self.columns


def patch_places(grid: PatchGrid, merge: int) -> torch.Tensor:
    """Return int64 [2, rows * columns]: row and column of every patch of one frame.

    Patches come in blocks of merge x merge, row of blocks by row of blocks.
    """
    rows = torch.arange(grid.rows).view(-1, 1, merge, 1)
    columns = torch.arange(grid.columns).view(1, -1, 1, merge)
    rows = rows.expand(-1, grid.columns // merge, -1, merge)
    columns = columns.expand(grid.rows // merge, -1, merge, -1)
    return torch.stack((rows.flatten(), columns.flatten()))


def rotary_places(grids: Sequence[PatchGrid], merge: int) -> torch.Tensor:
    """Return int32 [2, patches]: row and column of every patch of all grids, frame by frame."""
    places = [patch_places(grid, merge).repeat(1, grid.frames) for grid in grids]
    return torch.cat(places, dim=1).int()


def frame_boundaries(grids: Sequence[PatchGrid]) -> list[int]:
    """Return where frames begin and end among the patches: 0 first, the patch count last."""
    ends = [0]
    for grid in grids:
        for _ in range(grid.frames):
            ends.append(ends[-1] + grid.rows * grid.columns)
    return ends


def interpolate_positions(
    table: torch.Tensor, grids: Sequence[PatchGrid], merge: int
) -> torch.Tensor:
    """Return the position embeddings [patches, D] in the type of `table` [side * side, D].

    Bilinear with aligned corners: patch i of n reads the table at i * (side - 1) / (n - 1).
    """
    parts = [_interpolate(table, grid, merge).repeat(grid.frames, 1) for grid in grids]
    return torch.cat(parts)


def _interpolate(table: torch.Tensor, grid: PatchGrid, merge: int) -> torch.Tensor:
    side = round(table.shape[0] ** 0.5)
    rows, columns = patch_places(grid, merge).to(table.device)
    taps = [_axis_taps(side, count) for count in (grid.rows, grid.columns)]
    total = torch.zeros(rows.shape[0], table.shape[1], dtype=torch.float32, device=table.device)
    for row_index, row_weight in taps[0]:
        for column_index, column_weight in taps[1]:
            index = row_index.to(rows)[rows] * side + column_index.to(rows)[columns]
            weight = row_weight.to(table.device)[rows] * column_weight.to(table.device)[columns]
            total += table[index].float() * weight[:, None]
    return total.to(table.dtype)


def _axis_taps(side: int, count: int) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """Return (table index int64 [count], weight fp32 [count]) of the lower and the upper tap."""
    places = torch.linspace(0, side - 1, count, dtype=torch.float32)
    lower = places.long()
    upper = (lower + 1).clamp(max=side - 1)
    fraction = places - lower
    return (lower, 1.0 - fraction), (upper, fraction)
