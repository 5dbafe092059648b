"""Small images and videos as files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image


def random_pixels(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Return uint8 [height, width, 3]."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def encode_picture(pixels: np.ndarray, format: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format, **options)
    return out.getvalue()


def encode_video(
    frames: list[np.ndarray], rate: int = 8, container: str = "matroska", codec: str = "ffv1"
) -> bytes:
    """Return a video of frames uint8 [H, W, 3]; `ffv1` loses nothing in these colours."""
    import av

    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream: Any = file.add_stream(codec, rate=rate)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "bgr0" if codec == "ffv1" else "yuv420p"
        for pixels in frames:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        file.mux(stream.encode(None))
    return out.getvalue()
