"""Rotary positions of a prompt with images and videos (interleaved M-RoPE)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ninfer_runtime.models.qwen3_5.patch_grid import PatchGrid


class MediaRun(NamedTuple):
    """Media tokens of one image, or of one frame pair of a video: `begin` is the index of the
    first; rows and columns of merged patches."""

    begin: int
    rows: int
    columns: int

    @property
    def tokens(self) -> int:
        return self.rows * self.columns


def media_runs(begins: Sequence[int], grids: Sequence[PatchGrid], merge: int) -> list[MediaRun]:
    """Return one run for every frame of every grid; `begins` says where each run starts."""
    frames = [grid for grid in grids for _ in range(grid.frames)]
    return [
        MediaRun(begin, grid.rows // merge, grid.columns // merge)
        for begin, grid in zip(begins, frames, strict=True)
    ]


def rotary_positions(tokens: int, runs: Sequence[MediaRun]) -> torch.Tensor:
    """Return int32 [3, tokens] (time, height, width).

    Text counts up on all axes. A run that starts at position s has time s, height s + row, width
    s + column, and what follows goes on at s + max(rows, columns).
    """
    parts, token, position = [], 0, 0
    for run in runs:
        parts.append(_text(position, run.begin - token))
        position += run.begin - token
        place = torch.arange(run.tokens, dtype=torch.int32)
        rows, columns = place // run.columns, place % run.columns
        parts.append(torch.stack((torch.zeros_like(place), rows, columns)) + position)
        token = run.begin + run.tokens
        position += max(run.rows, run.columns)
    parts.append(_text(position, tokens - token))
    return torch.cat(parts, dim=1)


def _text(position: int, tokens: int) -> torch.Tensor:
    return torch.arange(position, position + tokens, dtype=torch.int32).expand(3, -1)
