"""Laws of holes: `specs/numeric-formats.md`, rules NF-61 and NF-62."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.holes import zero_runs
from ninfer_formats.layouts.geometry import plan_tensor
from ninfer_formats.layouts.planes import split_planes
from ninfer_formats.tensors import encode_tensor, find_illegal_words

SHAPE = (256, 2048)
MATRICES = [nf.Q4, nf.Q5, nf.Q6, nf.Q8, nf.NVFP4, nf.FP8]


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


@pytest.mark.parametrize("begin", [0, 1, 504, 505, 511, 15904])
def test_shortest_run_is_found_at_any_offset(begin):
    """NF-61: where it holds eight samples, where it holds seven, and at both ends."""
    flat = np.ones(20000, np.uint8)
    flat[begin : begin + 4096] = 0
    assert list(zero_runs(flat)) == [(begin, begin + 4096)]
    flat[begin + 4095] = 1
    assert list(zero_runs(flat)) == []


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20000), st.integers(1, 9000)), max_size=4),
    st.integers(0, 9),
)
def test_every_long_run_is_found_exactly(zeros, tail):
    """NF-61: the samples miss nothing."""
    flat = np.ones(20000 + tail, np.uint8)
    for at, length in zeros:
        flat[at : at + length] = 0
    marks = np.flatnonzero(np.concatenate([[1], flat, [1]]))
    want = [(a, b - 1) for a, b in pairwise(marks) if b - a - 1 >= 4096]
    assert list(zero_runs(flat)) == want
