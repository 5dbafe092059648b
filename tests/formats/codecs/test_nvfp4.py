"""Laws of nvfp4: `specs/numeric-formats.md`, rules NF-40 to NF-46."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import scalar_codecs as oracle
from ninfer_formats.codecs import nvfp4
from ninfer_formats.errors import NumericError

TIES = [6, -6, 0.5, -0.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25, -5, 0.2500001, 7, 0]


def test_divisor_divides():
    """NF-40: 6 * 448 / 2688 is 1, so the divisor is no multiplier."""
    values = nvfp4.decode(np.uint8([[7, 8]]), np.uint8([[0x7E]]), np.float32([2688]))
    assert values.tolist() == [[1, 0]] and np.signbit(values[0, 1])


def test_absmax_divisor_is_2688_over_the_largest_magnitude():
    """NF-43: 448 for 6, 1 for zeros, the largest float32 where the quotient overflows."""
    assert nvfp4.choose_divisor(6) == 448
    assert nvfp4.choose_divisor(0) == 1
    assert nvfp4.choose_divisor(1e-40) == np.finfo(np.float32).max


def test_codes_round_ties_to_even_and_keep_signs():
    """NF-44, NF-45: the block holds 6, so its scale word is 0x7E and values are codes' values."""
    values = np.float32([[6 if x == 7 else x for x in TIES]])
    codes, scales = nvfp4.encode(values, np.float32(448))
    assert scales.tolist() == [[0x7E]]
    assert codes.tolist() == [[7, 15, 1, 8, 0, 2, 2, 4, 4, 6, 6, 8, 14, 1, 7, 0]]


def test_vanishing_block_scale_is_rescued():
    """NF-44: |y| / 6 below 2^-10 rounds to zero and becomes word 0x01, which is 2^-9."""
    codes, scales = nvfp4.encode(np.float32([[2.0**-9, 2.0**-20]]), np.float32(1))
    assert (codes.tolist(), scales.tolist()) == ([[2, 0]], [[0x01]])


def test_block_of_zeros_has_scale_zero_and_keeps_signs():
    """NF-45."""
    codes, scales = nvfp4.encode(np.float32([[0, -0.0]]), np.float32(1))
    assert (codes.tolist(), scales.tolist()) == ([[0, 8]], [[0]])


def test_blocks_run_along_a_row_and_the_last_may_be_short():
    """NF-42: 17 values make two blocks."""
    values = np.ones((2, 17), np.float32)
    values[:, 16] = [6, -3]
    _, scales = nvfp4.encode(values, np.float32(448))
    assert scales.shape == (2, 2)
    assert scales[:, 1].tolist() == [0x7E, 0x76]


def test_decoding_takes_the_divisor_of_each_row():
    """NF-42."""
    values = nvfp4.decode(np.uint8([[2], [2]]), np.uint8([[0x38], [0x38]]), np.float32([1, 4]))
    assert values.tolist() == [[1], [0.25]]


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_illegal_divisor_is_refused(bad):
    """NF-41."""
    with pytest.raises(NumericError, match="divisor"):
        nvfp4.check_divisor(bad)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_source_is_refused_with_its_place(bad):
    """NF-43."""
    values = np.ones((2, 20), np.float32)
    values[1, 17] = bad
    with pytest.raises(NumericError, match="row 1, column 17"):
        nvfp4.largest_magnitude(values)


@pytest.mark.parametrize("n, k", [(6, 1), (4, 64), (4, 96), (3, 130), (1, 1152)])
def test_encoder_and_decoder_agree_with_the_element_by_element_oracle(n, k):
    """NF-40 to NF-45: blocks of very different size, ties, zeros of both signs."""
    rng = np.random.default_rng(k)
    values = rng.standard_normal((n, k)) * 10.0 ** rng.integers(-6, 2, (n, k))
    values[0] = rng.choice(TIES, k)
    values[rng.random((n, k)) < 0.1] = -0.0
    values = values.astype(np.float32)
    divisor = nvfp4.choose_divisor(nvfp4.largest_magnitude(values))
    codes, scales = nvfp4.encode(values, divisor)
    want = [oracle.encode_nvfp4_row(row, float(divisor)) for row in values.tolist()]
    assert list(zip(codes.tolist(), scales.tolist(), strict=True)) == want
    decoded = nvfp4.decode(codes, scales, np.full(n, divisor))
    exact = [
        [oracle.nvfp4_value(c, scales[at // 16], float(divisor)) for at, c in enumerate(codes)]
        for codes, scales in want
    ]
    assert (decoded.view(np.uint32) == np.array(exact, np.float32).view(np.uint32)).all()


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([1, 2, 96]), st.sampled_from([1, 96, 130, 1152]), st.integers(0, 2**32))
def test_encoding_decoded_values_again_changes_nothing(n, k, seed):
    """NF-27."""
    values = np.random.default_rng(seed).standard_normal((n, k)).astype(np.float32)
    divisor = nvfp4.choose_divisor(nvfp4.largest_magnitude(values))
    codes, scales = nvfp4.encode(values, divisor)
    again = nvfp4.encode(nvfp4.decode(codes, scales, np.full(n, divisor)), divisor)
    assert (again[0] == codes).all() and (again[1] == scales).all()
