"""What the preprocessor files of an artifact say about images and videos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ninfer_formats.inventories.geometry import VisionGeometry
from ninfer_formats.reader import Artifact
from ninfer_runtime.errors import StartupError
from ninfer_runtime.frontend.resources import read_json

IMAGE_FILE, VIDEO_FILE = "preprocessor_config.json", "video_preprocessor_config.json"
_BICUBIC = 3


@dataclass(frozen=True)
class PixelSettings:
    """`least` and `most` pixels of an image, or of all frames of a video together; sides are
    multiples of patch * merge. A value v of 0..255 becomes (v - mean) / deviation, both in the
    same units, per channel."""

    least: int
    most: int
    patch: int
    merge: int
    frames: int
    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]

    @property
    def factor(self) -> int:
        return self.patch * self.merge


@dataclass(frozen=True)
class VideoSettings:
    """`rate` frames a second are looked at, `fewest` to `largest` in all, never more than there
    are. With `frame_cap` (pixels) no frame is larger than that."""

    pixels: PixelSettings
    rate: float
    fewest: int
    largest: int
    frame_cap: int | None


def read_image_settings(artifact: Artifact, vision: VisionGeometry) -> PixelSettings:
    """Return the settings for images; the family's where the artifact has no file."""
    config = read_json(artifact, IMAGE_FILE) or {}
    return _read_pixels(_Fields(artifact, IMAGE_FILE, config), vision, 65536, 16777216)


def read_video_settings(artifact: Artifact, vision: VisionGeometry) -> VideoSettings:
    """Return the settings for videos; transformers' defaults where the artifact has no file."""
    fields = _Fields(artifact, VIDEO_FILE, read_json(artifact, VIDEO_FILE) or {})
    pixels = _read_pixels(fields, vision, 128 * 32 * 32, 768 * 32 * 32)
    capped = fields.config.get("cap_pixels_per_frame") is True
    tokens = fields.number("max_video_tokens", 768)
    return VideoSettings(
        pixels,
        fields.number("fps", 2),
        int(fields.number("min_frames", 4)),
        int(fields.number("max_frames", 768)),
        int(tokens) * pixels.factor**2 if capped else None,
    )


def count_frame_patches(artifact: Artifact, vision: VisionGeometry) -> int:
    """Return the most patches of one image or one frame pair of a video."""
    image, video = read_image_settings(artifact, vision), read_video_settings(artifact, vision)
    # No video has fewer frames than one patch is deep.
    frame = video.pixels.most // video.pixels.frames
    if video.frame_cap is not None:
        frame = min(frame, max(video.frame_cap, int(video.pixels.least * 1.05)))
    return max(image.most, frame) // vision.patch_size**2


@dataclass(frozen=True)
class _Fields:
    """One file, read with errors that name it."""

    artifact: Artifact
    file: str
    config: Mapping[str, Any]

    def number(self, key: str, default: float) -> float:
        value = self.config.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**53:
            raise self.error(f"{key} is not a positive number", value)
        return value

    def channels(self, key: str) -> tuple[float, float, float]:
        value = self.config.get(key)
        value = [0.5, 0.5, 0.5] if value is None else value
        if not isinstance(value, list) or len(value) != 3:
            raise self.error(f"{key} is not a list of three numbers", value)
        if not all(type(item) in (int, float) for item in value):
            raise self.error(f"{key} is not a list of three numbers", value)
        return float(value[0]), float(value[1]), float(value[2])

    def error(self, what: str, got: object, want: object = None) -> StartupError:
        return StartupError(what, path=self.artifact.path, where=self.file, got=got, want=want)


def _read_pixels(fields: _Fields, vision: VisionGeometry, least: int, most: int) -> PixelSettings:
    _check_steps(fields)
    _check_sizes(fields, vision)
    size = fields.config.get("size")
    sizes = _Fields(fields.artifact, fields.file, size if isinstance(size, Mapping) else {})
    least = int(fields.number("min_pixels", sizes.number("shortest_edge", least)))
    most = int(fields.number("max_pixels", sizes.number("longest_edge", most)))
    # transformers folds the factor of 1/255 into mean and deviation.
    scale = 1.0 / fields.number("rescale_factor", 1 / 255)
    mean, deviation = fields.channels("image_mean"), fields.channels("image_std")
    if least > most or 0.0 in deviation:
        raise fields.error("pixel limits or deviation are impossible", f"{least} to {most}")
    return PixelSettings(
        least,
        most,
        vision.patch_size,
        vision.spatial_merge_size,
        vision.temporal_patch_size,
        (mean[0] * scale, mean[1] * scale, mean[2] * scale),
        (deviation[0] * scale, deviation[1] * scale, deviation[2] * scale),
    )


def _check_steps(fields: _Fields) -> None:
    """Refuse files that ask for something else than resize, rescale and normalise."""
    for key in ("do_resize", "do_rescale", "do_normalize"):
        if fields.config.get(key) is False:
            raise fields.error(f"{key} is off", False, True)
    if fields.config.get("resample", _BICUBIC) != _BICUBIC:
        raise fields.error("resample is not bicubic", fields.config["resample"], _BICUBIC)


def _check_sizes(fields: _Fields, vision: VisionGeometry) -> None:
    wanted = {
        "patch_size": vision.patch_size,
        "merge_size": vision.spatial_merge_size,
        "temporal_patch_size": vision.temporal_patch_size,
    }
    for key, want in wanted.items():
        if fields.config.get(key, want) != want:
            raise fields.error(f"{key} differs from the vision tower's", fields.config[key], want)
