"""Laws of placeholders: every row of a picture has its token."""

from __future__ import annotations

import pytest
import torch

from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.control_tokens import Segment
from ninfer_runtime.frontend.media import Medium
from ninfer_runtime.frontend.prompt import build_prompt, extend_prompt
from ninfer_runtime.models.qwen3_5.patch_grid import PatchGrid

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"


def image(rows: int, columns: int) -> Medium:
    return Medium("image", torch.zeros(rows * columns, 1), PatchGrid(1, rows, columns))


def video(*seconds: float) -> Medium:
    grid = PatchGrid(len(seconds), 2, 4)
    return Medium("video", torch.zeros(grid.patches, 1), grid, seconds)


def build(tokenizer, text: str, *media: Medium):
    return build_prompt(tokenizer, [Segment(text, False)], media, 2)


def test_a_prompt_with_text_behind_it_is_the_prompt_of_both(tokenizer):
    for media in ((), (image(4, 6),)):
        begin, more = f"a{IMAGE if media else ''}b\n", "so be it"
        extended = extend_prompt(build(tokenizer, begin, *media), tokenizer.encode(more))
        whole = build(tokenizer, begin + more, *media)
        assert extended.ids == whole.ids
        assert (extended.positions is None) == (whole.positions is None)
        if extended.positions is not None and whole.positions is not None:
            assert extended.positions.tolist() == whole.positions.tolist()
            assert extended.positions.dtype == whole.positions.dtype


def test_an_image_has_a_token_for_every_merged_patch(tokenizer):
    """FE-17"""
    prompt = build(tokenizer, f"a{IMAGE}b", image(4, 6))
    expected = "a<|vision_start|>" + "<|image_pad|>" * 6 + "<|vision_end|>b"
    assert list(prompt.ids) == tokenizer.encode(expected)
    pad = tokenizer.added["<|image_pad|>"]
    assert prompt.places is not None and prompt.positions is not None
    assert prompt.places.tolist() == [i for i, id in enumerate(prompt.ids) if id == pad]
    # a, start, six patches on a grid of 2 x 3, end, b: the run takes three positions.
    assert prompt.positions.tolist() == [
        [0, 1, 2, 2, 2, 2, 2, 2, 5, 6],
        [0, 1, 2, 2, 2, 3, 3, 3, 5, 6],
        [0, 1, 2, 3, 4, 2, 3, 4, 5, 6],
    ]


def test_a_video_is_its_layers_each_with_its_time_and_nothing_around(tokenizer):
    """FE-18"""
    prompt = build(tokenizer, f"see {VIDEO}now", video(0.25, 1.25))
    pads = "<|vision_start|><|video_pad|><|video_pad|><|vision_end|>"
    expected = f"see <0.2 seconds>{pads}<1.2 seconds>{pads}now"
    assert list(prompt.ids) == tokenizer.encode(expected)


def test_media_of_both_kinds_keep_the_order_of_the_text(tokenizer):
    """FE-17"""
    media = (image(2, 2), video(0.0), image(4, 4))
    prompt = build(tokenizer, f"{IMAGE}{VIDEO}{IMAGE}", *media)
    assert prompt.media == media
    assert prompt.places is not None and len(prompt.places) == 1 + 2 + 4
    moved = build(tokenizer, f"{VIDEO}{IMAGE}{IMAGE}", *media)
    assert moved.media == (media[1], media[0], media[2])


def test_a_prompt_without_media_is_its_tokens(tokenizer):
    prompt = build(tokenizer, "a<think>")
    assert (list(prompt.ids), prompt.places, prompt.positions) == (
        tokenizer.encode("a<think>"), None, None
    )  # fmt: skip


def test_a_pad_in_a_literal_text_takes_no_picture(tokenizer):
    """FE-6"""
    segments = [Segment("<|image_pad|>", True), Segment(IMAGE, False)]
    prompt = build_prompt(tokenizer, segments, [image(2, 2)], 2)
    assert list(prompt.ids).count(tokenizer.added["<|image_pad|>"]) == 1


@pytest.mark.parametrize(
    ("text", "media"),
    [
        (IMAGE, []),
        (VIDEO, []),
        (IMAGE + IMAGE, [image(2, 2)]),
        ("none", [image(2, 2)]),
        ("none", [video(0.0)]),
        (VIDEO, [image(2, 2), video(0.0)]),
    ],
)
def test_pads_and_media_must_match_one_to_one(tokenizer, text, media):
    """FE-17"""
    with pytest.raises(RequestError, match="does not place every"):
        build(tokenizer, text, *media)
