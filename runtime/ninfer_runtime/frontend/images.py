"""Image files to pixels, with limits that hold before anything is decoded."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ninfer_runtime.errors import RequestError

if TYPE_CHECKING:
    from PIL.Image import Image

# Formats whose decoders Pillow holds itself; others would start programs of the machine.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")


@dataclass(frozen=True)
class MediaLimits:
    """`file_bytes` of one file, `pixels` of one image or frame before it is resized, and the
    `frames` of one video that are decoded."""

    file_bytes: int = 256 << 20
    pixels: int = 64_000_000
    frames: int = 500_000


def decode_image(data: bytes, where: str, limits: MediaLimits) -> torch.Tensor:
    """Return the pixels uint8 [3, H, W] of an image file, turned upright.

    Transparency is dropped, of an animation the first picture is used. RequestError, naming
    `where`, for a file that is too large, damaged or of another kind.
    """
    if len(data) > limits.file_bytes:
        raise RequestError("image file is too large", where=where, got=f"{len(data)} bytes",
                           want=f"at most {limits.file_bytes}")  # fmt: skip
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the limit below is ours, and lower
            image = Image.open(io.BytesIO(data), formats=FORMATS)
            check_pixels(image.width, image.height, where, limits)
            upright = ImageOps.exif_transpose(image)
            return _to_tensor(upright)
    except RequestError:
        raise
    except Exception as error:  # a decoder's errors have no common class
        reason = str(error) or type(error).__name__
        if isinstance(error, Image.DecompressionBombError):
            reason = f"more than {limits.pixels} pixels"
        if isinstance(error, Image.UnidentifiedImageError):
            reason = f"not one of {', '.join(FORMATS)}"
        raise RequestError(f"image cannot be read: {reason}", where=where) from None


def check_pixels(width: int, height: int, where: str, limits: MediaLimits) -> None:
    """Raise RequestError for a picture with no or too many pixels."""
    if width < 1 or height < 1 or width * height > limits.pixels:
        raise RequestError("picture has too many pixels or none", where=where,
                           got=f"{width} x {height}", want=f"at most {limits.pixels}")  # fmt: skip


def _to_tensor(image: Image) -> torch.Tensor:
    if image.mode.startswith("I;16"):  # converting cuts off above 255
        image = image.point(lambda value: value / 256).convert("L")
    pixels = np.array(image.convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
