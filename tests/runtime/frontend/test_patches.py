"""Laws of resized pixels and of the order of patches, against definitions of their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from builders.pictures import random_pixels
from builders.pixel_settings import IMAGE
from ninfer_runtime.frontend.patches import cut_patches, resize
from ninfer_runtime.frontend.resizing import Size


def to_frames(*pictures: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()


def cubic(x: float) -> float:
    """Keys' kernel with a = -0.5."""
    x = abs(x)
    if x < 1:
        return 1.5 * x**3 - 2.5 * x**2 + 1
    return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0


def resampling(count: int, wanted: int) -> np.ndarray:
    """Matrix [wanted, count]: the kernel is as wide as a new pixel when shrinking."""
    scale = count / wanted
    stretch = max(scale, 1.0)
    rows = []
    for i in range(wanted):
        center = (i + 0.5) * scale
        row = np.array([cubic((j + 0.5 - center) / stretch) for j in range(count)])
        rows.append(row / row.sum())
    return np.stack(rows)


def to_bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), 0, 255)


def define_resized(pixels: np.ndarray, size: Size) -> np.ndarray:
    """Width first, then height, rounded to bytes after each."""
    across = np.einsum("wx,yxc->ywc", resampling(pixels.shape[1], size.width), pixels)
    down = np.einsum("hy,ywc->hwc", resampling(pixels.shape[0], size.height), to_bytes(across))
    return to_bytes(down)


@pytest.mark.parametrize(
    ("height", "width", "size"),
    [(37, 50, Size(64, 96)), (130, 90, Size(64, 32)), (33, 200, Size(64, 64))],
)
def test_resized_bytes_are_the_bicubic_ones_within_one_step(height, width, size):
    """FE-12"""
    pixels = random_pixels(height, width)
    got = resize(to_frames(pixels), size)[0].permute(1, 2, 0).numpy().astype(int)
    assert np.abs(got - define_resized(pixels.astype(float), size)).max() <= 1


def test_a_picture_of_the_right_size_is_not_touched():
    frames = to_frames(random_pixels(64, 32))
    assert resize(frames, Size(64, 32)) is frames


def define_patches(frames: np.ndarray) -> np.ndarray:
    """Patches of uint8 [T, H, W, 3] one by one, in the order of the specification."""
    count, height, width, _ = frames.shape
    rows = []
    for layer in range(0, count, 2):
        for block_row in range(0, height, 32):
            for block_column in range(0, width, 32):
                for y in (block_row, block_row + 16):
                    for x in (block_column, block_column + 16):
                        patch = frames[layer : layer + 2, y : y + 16, x : x + 16]
                        rows.append(patch.transpose(3, 0, 1, 2).ravel())
    return (np.stack(rows).astype(np.float32) - 127.5) / 127.5


def test_an_image_stands_twice_in_its_patches():
    """FE-13"""
    pixels = random_pixels(64, 96)
    patches, grid = cut_patches(to_frames(pixels), IMAGE)
    assert grid == (1, 4, 6)
    assert np.array_equal(patches.numpy(), define_patches(np.stack([pixels, pixels])))


def test_the_last_of_an_odd_number_of_frames_stands_twice():
    """FE-13"""
    pictures = [random_pixels(32, 64, seed) for seed in range(3)]
    patches, grid = cut_patches(to_frames(*pictures), IMAGE)
    assert grid == (2, 2, 4)
    assert np.array_equal(patches.numpy(), define_patches(np.stack([*pictures, pictures[2]])))


def test_patches_are_those_of_transformers_where_nothing_is_resized():
    """FE-13: the processor without torchvision, which resamples a little differently."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    pixels = random_pixels(288, 352)
    half = [0.5, 0.5, 0.5]
    size = {"shortest_edge": 65536, "longest_edge": 16777216}
    oracle = Qwen2VLImageProcessorPil(size=size, patch_size=16, image_mean=half, image_std=half)
    want = oracle(images=[pixels], return_tensors="pt")
    got, grid = cut_patches(to_frames(pixels), IMAGE)
    assert [list(grid)] == want["image_grid_thw"].tolist()
    assert (got - want["pixel_values"]).abs().max() <= 1e-6
