"""Laws of fp8_e4m3fn_row_bf16: `specs/numeric-formats.md`, rules NF-30 to NF-35."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import scalar_codecs as oracle
from ninfer_formats.codecs import fp8_row
from ninfer_formats.errors import NumericError


def row(*values: float) -> np.ndarray:
    return np.array([values], np.float32)


def test_scale_multiplies():
    """NF-30: code 0x38 is 1, scale 0x4000 is 2; 0x80 is -0."""
    values = fp8_row.decode(np.array([[0x38, 0xB8, 0x80]], np.uint8), np.array([0x4000], np.uint16))
    assert values.tolist() == [[2, -2, 0]] and np.signbit(values[0, 2])


def test_codes_round_to_even_and_keep_the_sign_of_zero():
    """NF-34: scale 1; 8.5 lies between 8 (0x50) and 9 (0x51), 9.5 between 0x51 and 0x52."""
    codes, scales = fp8_row.encode(row(448, -0.0, 1, 8.5, 9.5, -8.5))
    assert scales.tolist() == [0x3F80]
    assert codes.tolist() == [[0x7E, 0x80, 0x38, 0x50, 0x52, 0xD0]]


def test_source_is_rounded_to_bfloat16_first():
    """NF-32: 1 + 2^-9 becomes 1 before the largest magnitude is taken."""
    assert fp8_row.encode(row(1 + 2**-9))[1] == fp8_row.encode(row(1))[1]
    with pytest.raises(NumericError, match="NaN or infinity"):
        fp8_row.encode(row(3.4e38))


def test_row_of_zeros_has_scale_zero_and_codes_zero():
    """NF-32: -0 as well."""
    codes, scales = fp8_row.encode(row(0, -0.0))
    assert (codes.tolist(), scales.tolist()) == ([[0, 0]], [0])


def test_row_too_small_to_normalise_becomes_zeros_or_an_error():
    """NF-33, NF-35: scale word 0x0020 is 2^-128, the last whose inverse overflows."""
    tiny, enough = row(448 * 2.0**-128, -1e-38), row(448 * 33 * 2.0**-133)
    codes, scales = fp8_row.encode(tiny)
    assert (codes.tolist(), scales.tolist()) == ([[0, 0]], [0])
    codes, scales = fp8_row.encode(enough, tiny_rows="error")
    assert (codes.tolist(), scales.tolist()) == ([[0x7E]], [0x0021])
    with pytest.raises(NumericError, match=r"row 5.*too small"):
        fp8_row.encode(tiny, first_row=5, tiny_rows="error")
    codes, scales = fp8_row.encode(row(1e-44))
    assert (codes.tolist(), scales.tolist()) == ([[0]], [0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_source_is_refused_with_its_place(bad):
    """NF-32."""
    values = np.ones((2, 3), np.float32)
    values[1, 2] = bad
    with pytest.raises(NumericError, match="row 8, column 2"):
        fp8_row.encode(values, first_row=7)


@pytest.mark.parametrize("n, k", [(8, 1), (6, 64), (6, 130), (2, 1152)])
def test_encoder_and_decoder_agree_with_the_element_by_element_oracle(n, k):
    """NF-30 to NF-35: random rows of every size, grid points and -0."""
    rng = np.random.default_rng(k)
    values = rng.standard_normal((n, k)) * 10.0 ** rng.integers(-38, 30, (n, 1))
    values[0] = rng.integers(-448, 449, k)
    values[rng.random((n, k)) < 0.1] = -0.0
    values = values.astype(np.float32)
    codes, scales = fp8_row.encode(values)
    want = [oracle.encode_fp8_row(row) for row in values.tolist()]
    assert list(zip(codes.tolist(), scales.tolist(), strict=True)) == want
    decoded = fp8_row.decode(codes, scales)
    exact = [[oracle.fp8_value(code, scale) for code in row] for row, scale in want]
    assert (decoded.view(np.uint32) == np.array(exact, np.float32).view(np.uint32)).all()


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([1, 2, 96]), st.sampled_from([1, 96, 130, 1152]), st.integers(0, 2**32))
def test_encoding_decoded_values_again_changes_nothing(n, k, seed):
    """NF-27. Products of code and scale fit a bfloat16 only if they have eight bits."""
    rng = np.random.default_rng(seed)
    scales = (127 + rng.integers(-20, 20, n)).astype(np.uint16) << 7
    codes = rng.integers(0, 0x7F, (n, k)).astype(np.uint8)
    codes[:, 0] = 0x7E
    again = fp8_row.encode(fp8_row.decode(codes, scales))
    assert (again[0] == codes).all() and (again[1] == scales).all()
