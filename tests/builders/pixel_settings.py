"""Settings as the family's preprocessor files state them."""

from __future__ import annotations

from ninfer_runtime.frontend.pixel_settings import PixelSettings, VideoSettings

HALF = (127.5, 127.5, 127.5)
IMAGE = PixelSettings(65536, 16777216, 16, 2, 2, HALF, HALF)
SMALL = PixelSettings(4096, 65536, 16, 2, 2, HALF, HALF)
VIDEO = VideoSettings(PixelSettings(4096, 25165824, 16, 2, 2, HALF, HALF), 2.0, 4, 768, None)
