"""Video files to the frames that are looked at."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.images import MediaLimits, check_pixels, decode_image
from ninfer_runtime.frontend.patches import resize
from ninfer_runtime.frontend.pixel_settings import VideoSettings
from ninfer_runtime.frontend.resizing import Size, fit_video


@dataclass(frozen=True)
class Frames:
    """Frames uint8 [T, 3, H, W], resized; frame t is number `indices[t]` of a video with `rate`
    frames a second."""

    pixels: torch.Tensor
    indices: tuple[int, ...]
    rate: float


def sample_frames(total: int, rate: float, settings: VideoSettings) -> tuple[int, ...]:
    """Return the numbers of the frames to look at, of `total` at `rate` a second.

    As many as the settings ask for, evenly spread from the first to the last, halves to even.
    """
    count = int(total / rate * settings.rate)
    count = min(max(count, settings.fewest), settings.largest, total)
    return tuple(np.linspace(0, total - 1, count).round().astype(int).tolist())


def join_pictures(
    files: list[bytes], rate: float, where: str, settings: VideoSettings, limits: MediaLimits
) -> Frames:
    """Return a video of image files, all of which are looked at."""
    if not files:
        raise RequestError("video has no frames", where=where)
    if len(files) > settings.largest:
        raise RequestError("video has too many frames", where=where, got=len(files),
                           want=f"at most {settings.largest}")  # fmt: skip
    parts: list[torch.Tensor] = []
    first = decode_image(files[0], f"{where} frame 1", limits)
    size = Size(first.shape[1], first.shape[2])
    fitted = fit_video(size, max(len(files), settings.pixels.frames), settings)
    for i, data in enumerate(files):
        pixels = decode_image(data, f"{where} frame {i + 1}", limits) if i else first
        if pixels.shape != first.shape:
            raise RequestError("frames of a video differ in size", where=f"{where} frame {i + 1}",
                               got=tuple(pixels.shape[1:]), want=tuple(size))  # fmt: skip
        parts.append(resize(pixels[None], fitted))
    return Frames(torch.cat(parts), tuple(range(len(files))), rate)


def decode_video(data: bytes, where: str, settings: VideoSettings, limits: MediaLimits) -> Frames:
    """Return the frames to look at of a video file; RequestError for one that cannot be read."""
    if len(data) > limits.file_bytes:
        raise RequestError("video file is too large", where=where, got=f"{len(data)} bytes",
                           want=f"at most {limits.file_bytes}")  # fmt: skip
    try:
        import av
    except ImportError:
        raise RequestError("videos need PyAV", where=where, remedy="pip install av") from None
    try:
        with av.open(io.BytesIO(data), metadata_errors="ignore") as container:
            return _decode(container, where, settings, limits)
    except RequestError:
        raise
    except Exception as error:  # a decoder's errors have no common class
        reason = str(error) or type(error).__name__
        raise RequestError(f"video cannot be read: {reason}", where=where) from None


def _decode(container: Any, where: str, settings: VideoSettings, limits: MediaLimits) -> Frames:
    if not container.streams.video:
        raise RequestError("file has no video", where=where)
    stream = container.streams.video[0]
    total = stream.frames or _count_packets(container, stream)
    if not 1 <= total <= limits.frames:
        raise RequestError("video has too many frames or none", where=where, got=total,
                           want=f"1 to {limits.frames}")  # fmt: skip
    rate = float(stream.average_rate or stream.guessed_rate or 24)
    indices = sample_frames(total, rate, settings)
    check_pixels(stream.codec_context.width, stream.codec_context.height, where, limits)
    frames, kept = [], []
    for index, pixels in _wanted_frames(container, stream, indices):
        size = Size(pixels.shape[0], pixels.shape[1])
        check_pixels(size.width, size.height, where, limits)
        fitted = fit_video(size, max(len(indices), settings.pixels.frames), settings)
        tensor = torch.from_numpy(pixels).permute(2, 0, 1)[None].contiguous()
        frames.append(resize(tensor, fitted))
        kept.append(index)
    if not frames or any(frame.shape != frames[0].shape for frame in frames):
        raise RequestError("video has no frames, or frames of several sizes", where=where)
    return Frames(torch.cat(frames), tuple(kept), rate)


def _count_packets(container: Any, stream: Any) -> int:
    """Count the frames of a container that does not state them, and go back to the start."""
    count = sum(1 for packet in container.demux(stream) if packet.size)
    container.seek(0)
    return count


def _wanted_frames(
    container: Any, stream: Any, indices: tuple[int, ...]
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (number, pixels [H, W, 3]) of the wanted frames that can be decoded."""
    wanted = set(indices)
    for index, frame in enumerate(container.decode(stream)):
        if index in wanted:
            yield index, frame.to_ndarray(format="rgb24")
        if index >= indices[-1]:
            return
