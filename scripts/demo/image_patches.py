# pyright: reportMissingImports=false
"""Images as patches in the order of the official image processor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

PATCH, MERGE = 16, 2
MOST_PATCHES = 256  # of one image of 256 x 256 pixels
SMALLEST_PIXELS, LARGEST_PIXELS = 64 * 64, 256 * 256
Patches = tuple[np.ndarray, int, int]


def smart_resize(height: int, width: int) -> tuple[int, int]:
    """Return the nearest sides that are multiples of 32 within the pixel limits."""
    unit = PATCH * MERGE
    high, wide = round(height / unit) * unit, round(width / unit) * unit
    if high * wide > LARGEST_PIXELS:
        scale = math.sqrt(height * width / LARGEST_PIXELS)
        high = max(unit, math.floor(height / scale / unit) * unit)
        wide = max(unit, math.floor(width / scale / unit) * unit)
    elif high * wide < SMALLEST_PIXELS:
        scale = math.sqrt(SMALLEST_PIXELS / (height * width))
        high = math.ceil(height * scale / unit) * unit
        wide = math.ceil(width * scale / unit) * unit
    return high, wide


def cut_patches(pixels: np.ndarray) -> Patches:
    """uint8 [h, w, 3] -> uint8 [patches, 3 * 16 * 16] in merge-block order, and the grid."""
    height, width, _ = pixels.shape
    rows, columns = height // PATCH, width // PATCH
    blocks = pixels.reshape(rows // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH, 3)
    blocks = blocks.transpose(0, 3, 1, 4, 6, 2, 5)
    return blocks.reshape(rows * columns, 3 * PATCH * PATCH), rows, columns


def prepare_image(image: Any) -> Patches:
    """Resize a picture as the processor does and cut it."""
    from PIL import Image

    height, width = smart_resize(image.height, image.width)
    if (height, width) != (image.height, image.width):
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    return cut_patches(np.asarray(image))
