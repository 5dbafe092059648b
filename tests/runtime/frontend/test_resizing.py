"""Laws of the sizes that pictures are brought to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize as fit_like
from transformers.models.qwen3_vl.video_processing_qwen3_vl import (
    smart_resize as fit_video_like,
)

from builders.pixel_settings import IMAGE, SMALL, VIDEO
from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.resizing import Size, fit_image, fit_video

SIDES = st.integers(1, 3000)


def too_narrow(height: int, width: int) -> bool:
    return max(height, width) > 200 * min(height, width)


@given(SIDES, SIDES, st.sampled_from([IMAGE, SMALL]))
def test_images_get_the_size_transformers_gives_them(height, width, settings):
    """FE-10"""
    if too_narrow(height, width):
        with pytest.raises(RequestError, match="too narrow"):
            fit_image(Size(height, width), settings)
        return
    want = fit_like(height, width, 32, settings.least, settings.most)
    assert fit_image(Size(height, width), settings) == want


@given(SIDES, SIDES, st.integers(2, 200))
def test_videos_get_the_size_transformers_gives_them(height, width, frames):
    """FE-11"""
    pixels = VIDEO.pixels
    try:
        want = fit_video_like(frames, height, width, 2, 32, pixels.least, pixels.most)
    except ValueError:
        with pytest.raises(RequestError, match="too narrow"):
            fit_video(Size(height, width), frames, VIDEO)
        return
    assert fit_video(Size(height, width), frames, VIDEO) == want


@pytest.mark.parametrize(
    ("size", "fitted"),
    [
        (Size(48, 80), Size(224, 352)),  # grown to 65536 pixels
        (Size(336, 368), Size(320, 384)),  # 10.5 and 11.5 multiples: halves to even
        (Size(4000, 6000), Size(3328, 4992)),  # cut down to 16777216
    ],
)
def test_worked_examples(size, fitted):
    """FE-10"""
    assert fit_image(size, IMAGE) == fitted


def test_capped_frames_do_not_grow_with_a_short_video():
    """FE-11"""
    capped = replace(VIDEO, frame_cap=768 * 32 * 32)
    assert fit_video(Size(1080, 1920), 4, VIDEO) == Size(1088, 1920)
    height, width = fit_video(Size(1080, 1920), 4, capped)
    assert height * width <= 768 * 32 * 32
