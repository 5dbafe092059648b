"""Sizes that images and videos are brought to, as the model's processors choose them."""

from __future__ import annotations

import math
from typing import NamedTuple

from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.pixel_settings import PixelSettings, VideoSettings

MAX_ASPECT = 200


class Size(NamedTuple):
    """Pixels."""

    height: int
    width: int


def fit_image(size: Size, settings: PixelSettings) -> Size:
    """Return the size an image is brought to; RequestError for a strip of pixels.

    Both sides are rounded to the nearest multiple of the factor, halves to even; when the area is
    then out of range, both sides are scaled to the limit and rounded down, or up to the least.
    """
    return _fit(size, 1, 1, settings, settings.most)


def fit_video(size: Size, frames: int, settings: VideoSettings) -> Size:
    """Return the size every frame is brought to; the limits are for all frames together."""
    pixels, factor = settings.pixels, settings.pixels.factor
    most = pixels.most
    if settings.frame_cap is not None:
        share = min(settings.frame_cap, most // frames)
        most = max(share, int(pixels.least * 1.05)) * frames
    if min(size) < factor:
        scale = max(factor / size.height, factor / size.width)
        size = Size(int(size.height * scale), int(size.width * scale))
    # Halves to even: 5 frames count as 4 here, 7 as 8.
    rounded = round(frames / pixels.frames) * pixels.frames
    return _fit(size, frames, rounded, pixels, most)


def _fit(size: Size, frames: int, rounded: int, settings: PixelSettings, most: int) -> Size:
    height, width = size
    if max(size) > MAX_ASPECT * min(size):
        raise RequestError(
            "picture is too narrow", got=f"{width} x {height}",
            want=f"an aspect ratio of at most {MAX_ASPECT}",
        )  # fmt: skip
    factor = settings.factor
    fitted = Size(round(height / factor) * factor, round(width / factor) * factor)
    area = rounded * fitted.height * fitted.width
    if area > most:
        shrink = math.sqrt(frames * height * width / most)
        return Size(
            max(factor, math.floor(height / shrink / factor) * factor),
            max(factor, math.floor(width / shrink / factor) * factor),
        )
    if area < settings.least:
        grow = math.sqrt(settings.least / (frames * height * width))
        return Size(
            math.ceil(height * grow / factor) * factor, math.ceil(width * grow / factor) * factor
        )
    return fitted
