"""Laws of holes: `specs/numeric-formats.md`, rules NF-61 and NF-62."""

from __future__ import annotations

import numpy as np
import pytest

from ninfer_formats import numeric_formats as nf
from ninfer_formats.layouts.geometry import plan_tensor
from ninfer_formats.layouts.planes import split_planes
from ninfer_formats.tensors import encode_tensor, find_illegal_words

SHAPE = (256, 2048)
MATRICES = [nf.Q4, nf.Q5, nf.Q6, nf.Q8, nf.NVFP4, nf.FP8]

CODE_PLANES = [
    (nf.Q4, "base"), (nf.Q5, "base"), (nf.Q6, "base"), (nf.Q8, "base"), (nf.NVFP4, "codes"),
    (nf.FP8, "codes"), (nf.Q5, "high"), (nf.Q6, "high"),
]  # fmt: skip


def stored(format: str, values: np.ndarray | None = None):
    if values is None:
        values = np.random.default_rng(6).standard_normal(SHAPE).astype(np.float32)
    layout = nf.FORMATS[format].layout
    buffer = encode_tensor(values, format)
    planes = split_planes(buffer, plan_tensor(format, layout, values.shape))

    def find() -> list[tuple]:
        found = find_illegal_words(buffer, format, layout, values.shape)
        return [(f.kind, f.severity, f.row) for f in found]

    return planes, find


@pytest.mark.parametrize("format", MATRICES)
@pytest.mark.parametrize("length, found", [(4096, True), (4000, False)])
def test_zero_page_in_the_codes_is_a_hole(format, length, found):
    """NF-61: at any offset, from 4096 bytes on."""
    planes, find = stored(format)
    plane = planes["base" if "base" in planes else "codes"]
    start = 10 * plane.shape[1] + 37
    plane.reshape(-1)[start : start + length] = 0
    plane.reshape(-1)[[start - 1, start + length]] = 0x11
    assert find() == ([("hole", "error", 10)] if found else [])


@pytest.mark.parametrize("format", [nf.Q5, nf.Q6])
@pytest.mark.parametrize("length, found", [(4096, True), (4095, False)])
def test_zero_page_in_the_high_bits_is_a_hole(format, length, found):
    """NF-61: q5 codes would all be positive, q6 codes all below 16."""
    planes, find = stored(format)
    plane = planes["high"]
    start = 10 * plane.shape[1] + 37
    plane.reshape(-1)[start : start + length] = 0
    plane.reshape(-1)[[start - 1, start + length]] = 0x55
    assert find() == ([("hole", "error", 10)] if found else [])


@pytest.mark.parametrize("format", [nf.Q5, nf.Q6])
def test_high_bits_lost_as_a_whole_are_a_hole(format):
    """NF-61."""
    planes, find = stored(format)
    planes["high"][:] = 0
    assert find() == [("hole", "error", 0)]


@pytest.mark.parametrize("format", [nf.Q5, nf.Q6])
@pytest.mark.parametrize(
    "values", [np.ones(SHAPE), np.eye(*SHAPE), np.eye(*SHAPE) + np.eye(*SHAPE, 1) / 2]
)
def test_constant_and_banded_matrices_have_no_hole(format, values):
    """NF-61: none of their q5 codes is negative, but there are few, or only one value of them."""
    _, find = stored(format, values.astype(np.float32))
    assert find() == []


@pytest.mark.parametrize("format", [nf.Q5, nf.Q6])
def test_positive_rows_are_no_hole(format):
    """NF-61: 7 rows of a q5 high plane are 1792 bytes, 14,336 codes without a negative one."""
    values = np.random.default_rng(6).standard_normal(SHAPE).astype(np.float32)
    values[40:47] = np.abs(values[40:47])
    _, find = stored(format, values)
    assert find() == []


@pytest.mark.parametrize("format, name", CODE_PLANES)
@pytest.mark.parametrize("is_end", [False, True])
@pytest.mark.parametrize("length, found", [(2048, True), (2047, False)])
def test_half_a_page_at_the_edge_of_a_plane_is_a_hole(format, name, is_end, length, found):
    """NF-61: the other half of the page lies in the plane or object beside it."""
    planes, find = stored(format)
    plane = planes[name]
    flat = plane.reshape(-1)[::-1] if is_end else plane.reshape(-1)
    flat[:length] = 0
    flat[length] = 0x55
    row = len(plane) - -(-length // plane.shape[1]) if is_end else 0
    assert find() == ([("hole", "error", row)] if found else [])


def test_zero_columns_of_fp8_are_no_hole():
    """NF-61: at the edge of the plane a run has to cover a row."""
    values = np.random.default_rng(6).standard_normal((4, 6000)).astype(np.float32)
    values[:, :3000] = 0
    _, find = stored(nf.FP8, values)
    assert find() == []


@pytest.mark.parametrize("format", MATRICES)
def test_rows_of_zeros_are_no_hole(format):
    """NF-61: their scales are zero too."""
    values = np.random.default_rng(6).standard_normal(SHAPE).astype(np.float32)
    values[40:200] = 0
    _, find = stored(format, values)
    assert find() == []


@pytest.mark.parametrize("format", [nf.Q4, nf.Q8, nf.NVFP4])
def test_rescued_groups_are_no_hole(format):
    """NF-61: scale word 1 goes to groups whose codes may all round to zero."""
    values = np.full(SHAPE, 1e-9, np.float32)
    values[0, 0] = 1
    _, find = stored(format, values)
    assert find() == []


def test_zero_page_in_nvfp4_scales_is_a_hole():
    """NF-61."""
    planes, find = stored(nf.NVFP4)
    planes["scales"].reshape(-1)[20000:24096] = 0
    assert find() == [("zero_scale", "notice", 128), ("hole", "error", 128)]


def test_zero_page_in_integer_scales_is_a_zero_scale():
    """NF-60."""
    planes, find = stored(nf.Q4)
    planes["scale"].reshape(-1)[4096:8192] = 0
    assert find() == [("zero_scale", "error", 64)]


@pytest.mark.parametrize("format", [nf.BF16, nf.FP32])
def test_zero_page_in_a_direct_format_is_a_notice(format):
    """NF-62."""
    planes, find = stored(format)
    planes["values"][100, :4096] = 0
    planes["values"][101, 0] = 1
    assert find() == [("zero_run", "notice", 100)]


@pytest.mark.parametrize("format", [*MATRICES, nf.BF16])
def test_tensor_of_zeros_is_a_notice(format):
    """NF-62."""
    _, find = stored(format, np.zeros((3, 130), np.float32))
    assert find() == [("all_zero", "notice", None)]
