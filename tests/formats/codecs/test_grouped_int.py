"""Laws of q4, q5, q6 and q8: `specs/numeric-formats.md`, rules NF-20 to NF-27."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import scalar_codecs as oracle
from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import grouped_int
from ninfer_formats.errors import NumericError

FORMATS = [nf.Q4, nf.Q5, nf.Q6, nf.Q8]


def row(*values: float) -> np.ndarray:
    return np.array([values], np.float32)


def test_minus_eight_beside_plus_seven_maps_the_larger_magnitude_to_minus_seven():
    """NF-24, NF-26: the worked example of the specification."""
    codes, scales = grouped_int.encode(row(7, -8, 0.5, 1.5, 2.5, -0.5), nf.Q4)
    assert scales.tolist() == [[0x3C92]]
    assert codes.tolist() == [[6, -7, 0, 1, 2, 0]]


def test_half_codes_round_to_even():
    """NF-26: scale 1, so values are codes before rounding."""
    codes, scales = grouped_int.encode(row(7, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.5), nf.Q4)
    assert scales.tolist() == [[0x3C00]]
    assert codes.tolist() == [[7, 0, 0, 2, -2, 2, -2, 4]]


def test_multiplying_by_the_inverse_decides_a_tie():
    """NF-26: scale 0x3CCC is 1.19921875; 3.5 times it divides to a tie (code 4), but times the
    inverse it falls just below (code 3)."""
    codes, scales = grouped_int.encode(row(7 * 1.19921875, 3.5 * 1.19921875), nf.Q4)
    assert (codes.tolist(), scales.tolist()) == ([[7, 3]], [[0x3CCC]])


def test_subnormal_scale_is_kept():
    """NF-21, NF-24: 7 * 2^-20 / 7 is float16 word 0x0010."""
    codes, scales = grouped_int.encode(row(7 * 2.0**-20, -(2.0**-20)), nf.Q4)
    assert (codes.tolist(), scales.tolist()) == ([[7, -1]], [[0x0010]])


def test_vanishing_scale_is_rescued():
    """NF-25: 3 * 2^-24 / 7 rounds to zero and becomes 2^-24."""
    codes, scales = grouped_int.encode(row(3 * 2.0**-24, 2.0**-25), nf.Q4)
    assert (codes.tolist(), scales.tolist()) == ([[3, 0]], [[0x0001]])
    codes, scales = grouped_int.encode(row(1e-45), nf.Q8)
    assert (codes.tolist(), scales.tolist()) == ([[0]], [[0x0001]])


def test_group_of_zeros_has_scale_zero():
    """NF-24: -0 counts as zero."""
    codes, scales = grouped_int.encode(row(0, -0.0), nf.Q6)
    assert (codes.tolist(), scales.tolist()) == ([[0, 0]], [[0]])


@pytest.mark.parametrize("format", FORMATS)
def test_largest_magnitude_takes_the_largest_code_of_either_sign(format):
    """NF-22, NF-24: -128 never appears."""
    high = grouped_int.CODES[format].high
    codes, _ = grouped_int.encode(row(-3.7, 3.7, 1), format)
    assert codes[0, :2].tolist() == [-high, high]


def test_short_last_group_is_scaled_by_its_own_values():
    """NF-23: 65 values make two groups, of scales 1/7 and 2/7."""
    values = np.ones((1, 65), np.float32)
    values[0, 64] = -2
    codes, scales = grouped_int.encode(values, nf.Q4)
    assert scales.tolist() == [[0x3092, 0x3492]]
    assert codes[0, 64] == -7


def test_group_of_a_row_ignores_its_neighbour_rows():
    """NF-7, NF-23: rows encode alike alone and together."""
    values = np.random.default_rng(3).standard_normal((5, 96)).astype(np.float32)
    together = grouped_int.encode(values, nf.Q8)
    for index in range(5):
        alone = grouped_int.encode(values[index : index + 1], nf.Q8)
        assert (alone[0] == together[0][index]).all() and (alone[1] == together[1][index]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_source_is_refused_with_its_place(bad):
    """NF-24."""
    values = np.zeros((3, 70), np.float32)
    values[2, 66] = bad
    with pytest.raises(NumericError, match=r"row 12, column 66: .*NaN or infinity.*1 columns in"):
        grouped_int.encode(values, nf.Q5, first_row=10)


def test_scale_past_float16_is_refused():
    """NF-25: 65520 * 7 / 7 rounds to infinity, a little less does not."""
    grouped_int.encode(row(7 * 65519.0), nf.Q4)
    with pytest.raises(NumericError, match=r"row 0, group 0: .*scale is not finite"):
        grouped_int.encode(row(7 * 65520.0), nf.Q4)


def test_value_is_scale_times_code():
    """NF-20: 0x3800 is 0.5, 0x0001 is 2^-24."""
    codes = np.array([[-8, 7]], np.int8)
    for word, scale in ((0x3800, 0.5), (0x0001, 2.0**-24)):
        values = grouped_int.decode(codes, np.array([[word]], np.uint16), nf.Q4)
        assert values.tolist() == [[-8 * scale, 7 * scale]]


def adversarial(seed: int, n: int, k: int) -> np.ndarray:
    """Rows of several kinds: random, ties, zeros, subnormal and rescued scales."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n, k)) * 10.0 ** rng.integers(-9, 4, (n, 1))
    values[rng.random((n, k)) < 0.1] = 0
    ties = rng.integers(-15, 16, (n, k)) / 2 * 2.0 ** rng.integers(-24, 3, (n, 1))
    return np.where(rng.random((n, 1)) < 0.5, values, ties).astype(np.float32)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("n, k", [(6, 1), (4, 64), (4, 96), (4, 130), (4, 256), (1, 1152)])
def test_encoder_agrees_with_the_element_by_element_oracle(format, n, k):
    """NF-20 to NF-26."""
    values = adversarial(k, n, k)
    codes, scales = grouped_int.encode(values, format)
    assert (codes.tolist(), scales.tolist()) == oracle.encode_grouped(values.tolist(), format)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(FORMATS),
    st.sampled_from([1, 2, 96]),
    st.sampled_from([1, 64, 96, 130, 256]),
    st.integers(0, 2**32),
)
def test_encoding_decoded_values_again_changes_nothing(format, n, k, seed):
    """NF-27."""
    values = np.random.default_rng(seed).standard_normal((n, k)).astype(np.float32)
    codes, scales = grouped_int.encode(values, format)
    again = grouped_int.encode(grouped_int.decode(codes, scales, format), format)
    assert (again[0] == codes).all() and (again[1] == scales).all()
