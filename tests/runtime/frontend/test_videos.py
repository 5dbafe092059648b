"""Laws of the frames that are looked at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

from builders.pictures import encode_picture, encode_video, random_pixels
from builders.pixel_settings import IMAGE, VIDEO
from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.images import MediaLimits
from ninfer_runtime.frontend.media import MediaReader, layer_seconds
from ninfer_runtime.frontend.videos import Frames, decode_video, join_pictures, sample_frames

LIMITS = MediaLimits()
FRAMES = [random_pixels(32, 64, seed) for seed in range(12)]


class Sampler(Qwen3VLVideoProcessor):
    """transformers' choice of frames without the rest of its processor."""

    def __init__(self):
        self.fps, self.min_frames, self.max_frames = 2, 4, 768


class Metadata:
    def __init__(self, total: int, rate: float) -> None:
        self.total_num_frames, self.fps = total, rate


@given(st.integers(1, 5000), st.sampled_from([1.0, 2.0, 7.5, 23.976, 25.0, 29.97, 60.0]))
def test_frames_are_those_that_transformers_samples(total, rate):
    """FE-15"""
    want = Sampler().sample_frames(Metadata(total, rate), fps=2)  # type: ignore[arg-type]
    assert list(sample_frames(total, rate, VIDEO)) == want.tolist()


@pytest.mark.parametrize("container", ["matroska", "nut"])
def test_wanted_frames_of_a_file_are_decoded(container):
    """FE-15"""
    frames = decode_video(encode_video(FRAMES, container=container), "clip", VIDEO, LIMITS)
    assert (frames.indices, frames.rate) == ((0, 4, 7, 11), 8.0)
    want = np.stack([FRAMES[i] for i in frames.indices]).transpose(0, 3, 1, 2)
    assert np.array_equal(frames.pixels.numpy(), want)


def test_common_files_can_be_read():
    frames = decode_video(encode_video(FRAMES, 8, "mp4", "mpeg4"), "clip", VIDEO, LIMITS)
    assert frames.pixels.shape == (4, 3, 32, 64)


def test_all_of_some_pictures_are_looked_at():
    files = [encode_picture(pixels) for pixels in FRAMES[:5]]
    frames = join_pictures(files, 2.0, "clip", VIDEO, LIMITS)
    assert frames.indices == (0, 1, 2, 3, 4)
    assert np.array_equal(frames.pixels[4].permute(1, 2, 0).numpy(), FRAMES[4])


def test_a_layer_has_the_mean_time_of_its_frames():
    """FE-16"""
    frames = Frames(torch.zeros(5, 3, 1, 1), (0, 10, 20, 30, 40), 10.0)
    assert layer_seconds(frames, 2) == (0.5, 2.5, 4.0)


def test_a_reader_gives_grids_and_times():
    reader = MediaReader(IMAGE, VIDEO)
    medium = reader.read_pictures([encode_picture(pixels) for pixels in FRAMES[:4]], "clip")
    assert (medium.kind, medium.grid, medium.seconds) == ("video", (2, 2, 4), (0.25, 1.25))
    assert reader.read_image(encode_picture(random_pixels(256, 256)), "x").grid == (1, 16, 16)


def test_case_74_one_frame_is_a_video_too():
    medium = MediaReader(IMAGE, VIDEO).read_pictures([encode_picture(FRAMES[0])], "clip")
    assert medium.grid.frames == 1
    assert medium.seconds == (0.0,)


LARGE = encode_picture(random_pixels(16, 16))
HOSTILE = {
    "empty": (lambda: decode_video(b"", "clip", VIDEO, LIMITS), "cannot be read"),
    "picture": (lambda: decode_video(b"x" * 999, "clip", VIDEO, LIMITS), "cannot be read"),
    "cut short": (
        lambda: decode_video(encode_video(FRAMES)[:200], "clip", VIDEO, LIMITS),
        "clip: ",
    ),
    "too many frames": (
        lambda: decode_video(encode_video(FRAMES), "clip", VIDEO, replace(LIMITS, frames=5)),
        "too many frames or none (got 12",
    ),
    "too many pixels": (
        lambda: decode_video(encode_video(FRAMES), "clip", VIDEO, replace(LIMITS, pixels=100)),
        "too many pixels or none (got 64 x 32",
    ),
    "too large": (
        lambda: decode_video(bytes(11), "clip", VIDEO, replace(LIMITS, file_bytes=10)),
        "too large",
    ),
    "no pictures": (lambda: join_pictures([], 2.0, "clip", VIDEO, LIMITS), "no frames"),
    "two sizes": (
        lambda: join_pictures([encode_picture(FRAMES[0]), LARGE], 2.0, "clip", VIDEO, LIMITS),
        "frames of a video differ in size",
    ),
    "many pictures": (
        lambda: join_pictures([b""] * 5, 2.0, "clip", replace(VIDEO, largest=4), LIMITS),
        "too many frames",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_case_74_a_hostile_video_is_one_error_that_names_it(case):
    """FE-14"""
    act, text = HOSTILE[case]
    with pytest.raises(RequestError) as caught:
        act()
    assert str(caught.value).startswith("clip")
    assert text in str(caught.value)
