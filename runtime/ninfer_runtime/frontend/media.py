"""Images and videos of a prompt, ready for the vision tower."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_formats.inventories.geometry import VisionGeometry
from ninfer_formats.reader import Artifact
from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.images import MediaLimits, decode_image
from ninfer_runtime.frontend.messages import IMAGE, VIDEO
from ninfer_runtime.frontend.patches import cut_patches, resize
from ninfer_runtime.frontend.pixel_settings import (
    PixelSettings,
    VideoSettings,
    read_image_settings,
    read_video_settings,
)
from ninfer_runtime.frontend.resizing import Size, fit_image
from ninfer_runtime.frontend.videos import Frames, decode_video, join_pictures
from ninfer_runtime.models.qwen3_5.patch_grid import PatchGrid

PICTURES_PER_SECOND = 2.0


@dataclass(frozen=True)
class Medium:
    """One image or video: `patches` fp32 [n, 3 * t * p * p] of `grid`; `seconds` are the times of
    a video's layers, empty for an image."""

    kind: str
    patches: torch.Tensor
    grid: PatchGrid
    seconds: tuple[float, ...] = ()


class MediaReader:
    """Reads image and video files into media; errors are RequestErrors that name `where`."""

    def __init__(
        self, image: PixelSettings, video: VideoSettings, limits: MediaLimits | None = None
    ) -> None:
        self.image_settings, self.video_settings = image, video
        self.limits = limits or MediaLimits()

    def read_image(self, data: bytes, where: str) -> Medium:
        pixels = decode_image(data, where, self.limits)
        try:
            size = fit_image(Size(pixels.shape[1], pixels.shape[2]), self.image_settings)
        except RequestError as error:
            error.where = error.where or where
            raise
        patches, grid = cut_patches(resize(pixels[None], size), self.image_settings)
        return Medium(IMAGE, patches, grid)

    def read_video(self, data: bytes, where: str) -> Medium:
        return self._finish(decode_video(data, where, self.video_settings, self.limits))

    def read_pictures(self, files: list[bytes], where: str) -> Medium:
        """Return the video of pictures taken twice a second; every one is looked at."""
        settings = self.video_settings
        return self._finish(join_pictures(files, PICTURES_PER_SECOND, where, settings, self.limits))

    def _finish(self, frames: Frames) -> Medium:
        settings = self.video_settings.pixels
        patches, grid = cut_patches(frames.pixels, settings)
        return Medium(VIDEO, patches, grid, layer_seconds(frames, settings.frames))


def layer_seconds(frames: Frames, depth: int) -> tuple[float, ...]:
    """Return the time of every layer: the mean of its first and last frame's."""
    times = [index / frames.rate for index in frames.indices]
    times += [times[-1]] * (-len(times) % depth)
    return tuple((times[i] + times[i + depth - 1]) / 2 for i in range(0, len(times), depth))


def load_media_reader(artifact: Artifact, vision: VisionGeometry) -> MediaReader:
    """Return the reader an artifact's preprocessor files describe."""
    return MediaReader(read_image_settings(artifact, vision), read_video_settings(artifact, vision))
