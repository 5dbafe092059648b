"""Laws of preprocessor files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ninfer_formats.inventories.geometry import VisionGeometry
from ninfer_runtime.errors import StartupError
from ninfer_runtime.frontend.pixel_settings import read_image_settings, read_video_settings
from ninfer_tools.synthetic.frontend import build_frontend

VISION = VisionGeometry(1, 64, 64, 1)
FILES = {role: json.loads(data) for role, data in build_frontend(400).items() if "pre" in role}


class Stored:
    """An artifact as far as settings look at it."""

    path = Path("model.ninfer")

    def __init__(self, **changes: object) -> None:
        files = {role: {**record, **changes} for role, record in FILES.items()}
        self.files = {role: json.dumps(record).encode() for role, record in files.items()}
        self.resources = {("vision", role): None for role in self.files}

    def resource(self, role: str, component: str) -> bytes:
        return self.files[role]


class Bare(Stored):
    def __init__(self) -> None:
        self.files, self.resources = {}, {}


def test_the_files_of_the_family_are_read():
    """FE-10, FE-11"""
    image = read_image_settings(Stored(), VISION)  # type: ignore[arg-type]
    assert (image.least, image.most, image.factor) == (65536, 16777216, 32)
    assert image.mean == image.deviation == (127.5, 127.5, 127.5)
    video = read_video_settings(Stored(), VISION)  # type: ignore[arg-type]
    assert (video.pixels.least, video.pixels.most) == (4096, 25165824)
    assert (video.rate, video.fewest, video.largest, video.frame_cap) == (2, 4, 768, None)


def test_older_keys_and_the_frame_cap_count():
    stored = Stored(min_pixels=1024, max_pixels=2048, cap_pixels_per_frame=True)
    video = read_video_settings(stored, VISION)  # type: ignore[arg-type]
    assert (video.pixels.least, video.pixels.most) == (1024, 2048)
    assert video.frame_cap == 768 * 1024


def test_absent_files_mean_the_stated_defaults():
    """FE-10, FE-11"""
    image = read_image_settings(Bare(), VISION)  # type: ignore[arg-type]
    video = read_video_settings(Bare(), VISION)  # type: ignore[arg-type]
    assert (image.least, image.most) == (65536, 16777216)
    assert (video.pixels.least, video.pixels.most) == (131072, 786432)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"patch_size": 14}, "patch_size differs from the vision tower's (got 14, want 16)"),
        ({"do_resize": False}, "do_resize is off"),
        ({"resample": 2}, "resample is not bicubic"),
        ({"image_mean": [0.5]}, "image_mean is not a list of three numbers"),
        ({"image_std": [0.5, 0.5, "x"]}, "image_std is not a list of three numbers"),
        ({"min_pixels": -1}, "min_pixels is not a positive number"),
        ({"min_pixels": 9, "max_pixels": 5}, "pixel limits or deviation are impossible"),
    ],
)
def test_a_file_that_asks_for_something_else_is_refused(changes, text):
    with pytest.raises(StartupError) as caught:
        read_image_settings(Stored(**changes), VISION)  # type: ignore[arg-type]
    assert text in str(caught.value)
    assert "preprocessor_config.json" in str(caught.value)
