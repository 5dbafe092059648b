"""Pixels of images and frames to the rows that the vision tower reads."""

from __future__ import annotations

import torch
from torch.nn.functional import interpolate

from ninfer_runtime.frontend.pixel_settings import PixelSettings
from ninfer_runtime.frontend.resizing import Size
from ninfer_runtime.models.qwen3_5.patch_grid import PatchGrid


def resize(frames: torch.Tensor, size: Size) -> torch.Tensor:
    """Return uint8 [T, 3, height, width]: bicubic with antialias, from uint8 [T, 3, H, W].

    On bytes torch interpolates in fixed point; that is what the model was trained with.
    """
    if frames.shape[-2:] == size:
        return frames
    return interpolate(frames, size=size, mode="bicubic", antialias=True, align_corners=False)


def cut_patches(frames: torch.Tensor, settings: PixelSettings) -> tuple[torch.Tensor, PatchGrid]:
    """Return patches fp32 [n, 3 * t * p * p] and their grid, from uint8 [T, 3, H, W].

    t frames make one layer of patches, the last frame standing in for those that are missing. A
    patch lists channel, frame, row, column. Patches come layer by layer in merge blocks: row of
    blocks, column of blocks, then row and column inside the block.
    """
    side, merge, depth = settings.patch, settings.merge, settings.frames
    missing = -frames.shape[0] % depth
    frames = torch.cat((frames, frames[-1:].expand(missing, -1, -1, -1)))
    count, channels, height, width = frames.shape
    grid = PatchGrid(count // depth, height // side, width // side)
    blocks = frames.view(
        grid.frames, depth, channels,
        grid.rows // merge, merge, side, grid.columns // merge, merge, side,
    )  # fmt: skip
    rows = blocks.permute(0, 3, 6, 4, 7, 2, 1, 5, 8)
    mean = torch.tensor(settings.mean)[:, None, None, None]
    deviation = torch.tensor(settings.deviation)[:, None, None, None]
    values = rows.float().sub_(mean).div_(deviation)
    return values.reshape(grid.patches, -1), grid
