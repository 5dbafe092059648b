"""Laws of row ranges: `specs/layouts.md`, rules LY-50 to LY-55."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import NumericError, UsageError
from ninfer_formats.tensors import (
    decode_rows,
    decode_tensor,
    encode_tensor,
    import_words,
    join_rows,
    slice_rows,
    view_rows,
)

FORMATS = [nf.BF16, nf.FP32, nf.Q4, nf.Q5, nf.Q6, nf.Q8, nf.NVFP4, nf.FP8]


def stored(format: str, shape: tuple[int, ...], seed: int = 8) -> tuple:
    """The first four arguments of every row function."""
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return encode_tensor(values, format), format, nf.FORMATS[format].layout, shape


def stacked(divisors: list[float], rows: int) -> tuple:
    n = rows * len(divisors)
    codes, scales = np.full((n, 8), 0x22, np.uint8), np.full((n, 1), 0x38, np.uint8)
    buffer = import_words(nf.NVFP4, (n, 16), codes, scales, np.float32(divisors))
    return buffer, nf.NVFP4, nf.BLOCK_SCALE, (n, 16)


@pytest.mark.parametrize("format", [f for f in FORMATS if f != nf.NVFP4])
def test_row_views_share_the_bytes_of_the_parent(format):
    """LY-51."""
    tensor = stored(format, (9, 130))
    view = view_rows(*tensor, 2, 7)
    assert not any(view.copied.values()) and view.shape == (5, 130)
    for rows in view.planes.values():
        assert np.shares_memory(rows, tensor[0]) and len(rows) == 5


@pytest.mark.parametrize(
    "begin, end, copied",
    [(128, 256, False), (0, 300, False), (256, 300, False), (128, 200, True), (5, 128, True)],
)
def test_nvfp4_scales_are_copied_only_off_the_tiles(begin, end, copied):
    """LY-51, LY-52."""
    tensor = stored(nf.NVFP4, (300, 130))
    view = view_rows(*tensor, begin, end)
    assert view.copied == {"codes": False, "scales": copied, "divisor": False}
    for name, rows in view.planes.items():
        assert np.shares_memory(rows, tensor[0]) == (not view.copied[name])


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(FORMATS),
    st.sampled_from([1, 2, 96, 128, 200]),
    st.sampled_from([1, 64, 96, 130, 256, 1152]),
    st.data(),
)
def test_slices_decode_to_their_rows_and_join_to_their_parent(format, n, k, data):
    """LY-50, LY-54."""
    tensor = stored(format, (n, k), seed=n * k)
    cuts = sorted({0, n, *data.draw(st.lists(st.integers(0, n), max_size=3))})
    values, parts = decode_tensor(*tensor), []
    for begin, end in pairwise(cuts):
        alone = slice_rows(*tensor, begin, end)
        shape = (end - begin, k)
        assert (decode_tensor(alone, *tensor[1:3], shape) == values[begin:end]).all()
        assert (decode_rows(*tensor, begin, end) == values[begin:end]).all()
        parts.append(view_rows(alone, *tensor[1:3], shape, 0, end - begin))
    assert (join_rows(parts) == tensor[0]).all()


@pytest.mark.parametrize("format", [nf.Q6, nf.NVFP4, nf.FP8])
def test_wide_matrix_is_cut_and_joined(format):
    """LY-50, LY-54: K = 4304."""
    tensor = stored(format, (200, 4304))
    assert (join_rows([view_rows(*tensor, 0, 77), view_rows(*tensor, 77, 200)]) == tensor[0]).all()


def test_slice_of_encoded_rows_equals_encoded_slice():
    """LY-50, NF-7: every format whose rows do not depend on the whole tensor."""
    values = np.random.default_rng(9).standard_normal((40, 130)).astype(np.float32)
    for format in (nf.BF16, nf.Q4, nf.Q5, nf.Q6, nf.Q8, nf.FP8):
        whole = encode_tensor(values, format)
        alone = slice_rows(whole, format, nf.FORMATS[format].layout, values.shape, 3, 31)
        assert (alone == encode_tensor(values[3:31], format)).all()


def test_rows_of_any_rank_are_those_of_the_first_dimension():
    """LY-11, LY-50."""
    tensor = stored(nf.FP32, (4, 3, 5))
    assert (decode_rows(*tensor, 1, 3) == decode_tensor(*tensor)[1:3]).all()
    assert view_rows(*stored(nf.FP32, ()), 0, 1).shape == ()


@pytest.mark.parametrize("begin, end", [(-1, 2), (2, 2), (3, 1), (0, 10)])
def test_range_outside_the_tensor_is_refused(begin, end):
    """LY-50."""
    for function in (view_rows, decode_rows, slice_rows):
        with pytest.raises(UsageError, match="want 0 <= begin < end <= 9"):
            function(*stored(nf.Q4, (9, 64)), begin, end)


def test_slice_keeps_the_divisor_of_its_stack():
    """LY-53, NF-42."""
    tensor = stacked([1, 2, 4], rows=10)
    assert view_rows(*tensor, 12, 17, divisors=3).divisors.tolist() == [2]
    assert view_rows(*tensor, 0, 20, divisors=3).divisors.tolist() == [1, 2]
    assert view_rows(*tensor, 10, 30, divisors=3).divisors.tolist() == [2, 4]
    alone = slice_rows(*tensor, 10, 30, divisors=3)
    values = decode_tensor(alone, *tensor[1:3], (20, 16), divisors=2)
    assert values[:, 0].tolist() == [0.5] * 10 + [0.25] * 10


def test_slice_over_parts_of_unlike_stacks_is_refused_but_decodes():
    """LY-53."""
    tensor = stacked([1, 2], rows=10)
    with pytest.raises(NumericError, match="stacks whose divisors differ"):
        view_rows(*tensor, 5, 15, divisors=2)
    assert decode_rows(*tensor, 9, 11, divisors=2)[:, 0].tolist() == [1, 0.5]
    assert view_rows(*stacked([2, 2], rows=10), 5, 15, divisors=2).divisors.tolist() == [2]


def test_nvfp4_parts_join_only_with_equal_divisors():
    """LY-55, NF-46."""
    one, two = (view_rows(*stacked([d], rows=3), 0, 3) for d in (1, 2))
    with pytest.raises(NumericError, match=r"part 1: .*different divisors.*got 2.0, want 1.0"):
        join_rows([one, two])
    assert join_rows([one, one])[-4:].view("<f4")[0] == 1


def test_unlike_parts_do_not_join():
    """LY-54."""
    narrow, wide = (view_rows(*stored(nf.Q4, (2, k)), 0, 2) for k in (64, 128))
    other, scalar = view_rows(*stored(nf.Q5, (2, 64)), 0, 2), view_rows(*stored(nf.FP32, ()), 0, 1)
    for parts in ([narrow, wide], [narrow, other], [scalar, scalar]):
        with pytest.raises(UsageError, match="cannot be joined"):
            join_rows(parts)
    with pytest.raises(UsageError, match="nothing to join"):
        join_rows([])
