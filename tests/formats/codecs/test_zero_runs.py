"""Laws of the search for zero runs: `specs/numeric-formats.md`, rule NF-61."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_formats.codecs.zero_runs import edge_runs, zero_runs


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


@pytest.mark.parametrize("size", [0, 1, 511, 4095, 4096, 9000])
def test_flat_of_zeros_is_one_run(size):
    """NF-61: never both a short run and a long one, nor the same run from both ends."""
    flat = np.zeros(size, np.uint8)
    runs = [*zero_runs(flat), *edge_runs(flat, 512)]
    assert runs == ([(0, size)] if size >= 512 else [])


@pytest.mark.parametrize("leading", [0, 511, 512, 4095, 4096])
@pytest.mark.parametrize("trailing", [0, 511, 512, 4095, 4096])
def test_short_runs_are_found_at_both_edges_only(leading, trailing):
    """NF-61: from `least` bytes on, and below a page."""
    flat = np.ones(20000, np.uint8)
    flat[:leading] = flat[20000 - trailing :] = flat[9000:9600] = 0
    want = [(0, leading)] if 512 <= leading < 4096 else []
    want += [(20000 - trailing, 20000)] if 512 <= trailing < 4096 else []
    assert list(edge_runs(flat, 512)) == want
