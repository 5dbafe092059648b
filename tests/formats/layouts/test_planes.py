"""Laws of planes and sizes: `specs/layouts.md`, rules LY-1 to LY-3 and the size formulas."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import ArtifactError
from ninfer_formats.layouts.geometry import encoded_size, plan_tensor
from ninfer_formats.layouts.planes import blank_tensor, gaps_of, split_planes
from ninfer_formats.tensors import decode_tensor, encode_tensor


@pytest.mark.parametrize(
    "format, shape, size",
    [
        (nf.Q5, (2, 130), 528),
        (nf.Q4, (384, 128), 26112),
        (nf.Q4, (7168, 5120), 19_496_960),
        (nf.Q5, (7168, 5120), 24_084_480),
        (nf.Q6, (248320, 5120), 993_280_000),
        (nf.Q8, (248320, 5120), 1_350_860_800),
        (nf.NVFP4, (14336, 5120), 41_287_684),
        (nf.FP8, (14336, 5120), 73_428_992),
        (nf.BF16, (), 2),
        (nf.INT32, (131072,), 524_288),
        (nf.NVFP4, (96, 130), 96 * 72 + 3 * 512 + 4),
    ],
)
def test_size_follows_the_formula(format, shape, size):
    """LY-10, LY-21, LY-32 to LY-34, LY-40."""
    assert encoded_size(format, nf.FORMATS[format].layout, shape) == size


def test_planes_start_on_multiples_of_256_and_gaps_are_named():
    """LY-3: q5 [2, 130]."""
    geometry = plan_tensor(nf.Q5, nf.ROW_SPLIT, (2, 130))
    flat, planes = blank_tensor(geometry)
    assert [(p.name, p.offset, p.end) for p in geometry.planes] == [
        ("base", 0, 256), ("high", 256, 320), ("scale", 512, 528),
    ]  # fmt: skip
    assert not flat.any() and {name: rows.shape for name, rows in planes.items()} == {
        "base": (2, 128), "high": (2, 32), "scale": (2, 8),
    }  # fmt: skip
    assert [(name, gap.size) for name, gap in gaps_of(flat, geometry)] == [("high", 192)]


def test_planes_are_views():
    """LY-3."""
    flat = np.zeros(528, np.uint8)
    split_planes(flat, plan_tensor(nf.Q5, nf.ROW_SPLIT, (2, 130)))["high"][1, 0] = 9
    assert flat[256 + 32] == 9


@pytest.mark.parametrize("size", [0, 527, 529])
def test_wrong_size_is_refused(size):
    """LY-3: nothing follows the last plane."""
    with pytest.raises(ArtifactError, match=rf"got {size}, want 528"):
        split_planes(bytes(size), plan_tensor(nf.Q5, nf.ROW_SPLIT, (2, 130)))


@pytest.mark.parametrize(
    "format, layout, shape",
    [
        (nf.Q4, nf.CONTIGUOUS, (2, 2)),
        (nf.BF16, nf.ROW_SPLIT, (2, 2)),
        (nf.FP8, nf.BLOCK_SCALE, (2, 2)),
        (nf.Q4, nf.ROW_SPLIT, (2,)),
        (nf.NVFP4, nf.BLOCK_SCALE, (2, 2, 2)),
        (nf.BF16, nf.CONTIGUOUS, (2, 0)),
        (nf.FP32, nf.CONTIGUOUS, (2**40, 2**40)),
    ],
)
def test_what_a_layout_does_not_hold_is_refused(format, layout, shape):
    """LY-2."""
    with pytest.raises(ArtifactError):
        plan_tensor(format, layout, shape)


def test_any_buffer_decodes(tmp_path):
    """LY-1: bytes, memory views and mapped files at any offset."""
    values = np.arange(-64, 64, dtype=np.float32).reshape(2, 64)
    encoded = encode_tensor(values, nf.Q8)
    want = decode_tensor(encoded, nf.Q8, nf.ROW_SPLIT, (2, 64))
    path = tmp_path / "mapped"
    path.write_bytes(b"x" + encoded.tobytes())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for buffer in (encoded.tobytes(), memoryview(encoded.tobytes()), memoryview(mapped)[1:]):
            assert (decode_tensor(buffer, nf.Q8, nf.ROW_SPLIT, (2, 64)) == want).all()
            del buffer
