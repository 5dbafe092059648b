"""Laws of importing words: `specs/numeric-formats.md`, rule NF-8."""

from __future__ import annotations

import numpy as np
import pytest

from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import NumericError, UsageError
from ninfer_formats.tensors import decode_tensor, import_words


def test_nvfp4_words_are_kept_and_the_divisor_divides():
    """NF-8, NF-40: byte 0x2F is code 15 (-6) then code 2 (1); scale 0x38 is 1; divisor 2."""
    codes, scales = np.zeros((1, 8), np.uint8), np.array([[0x38]], np.uint8)
    codes[0, 0] = 0x2F
    encoded = import_words(nf.NVFP4, (1, 16), codes, scales, 2.0)
    assert encoded[:8].tobytes().hex() == "2f00000000000000"
    assert (encoded[256], encoded[768:].tobytes().hex()) == (0x38, "00000040")
    values = decode_tensor(encoded, nf.NVFP4, nf.BLOCK_SCALE, (1, 16))
    assert values[0, :3].tolist() == [-3, 0.5, 0]


def test_nvfp4_takes_a_divisor_for_each_stack():
    """NF-42: rows 0 and 1 divide by 1, rows 2 and 3 by 4."""
    codes, scales = np.full((4, 1), 2, np.uint8), np.full((4, 1), 0x38, np.uint8)
    encoded = import_words(nf.NVFP4, (4, 1), codes, scales, np.float32([1, 4]))
    values = decode_tensor(encoded, nf.NVFP4, nf.BLOCK_SCALE, (4, 1), divisors=2)
    assert values[:, 0].tolist() == [1, 1, 0.25, 0.25]


def test_fp8_words_are_kept_and_the_scale_multiplies():
    """NF-8, NF-30: code 0x38 is 1, scale 0x4040 is 3."""
    encoded = import_words(nf.FP8, (1, 2), np.uint8([[0x38, 0x80]]), np.uint16([0x4040]))
    assert encoded[:2].tobytes().hex() + encoded[256:].tobytes().hex() == "38804040"
    assert decode_tensor(encoded, nf.FP8, nf.ROW_SCALE, (1, 2)).tolist() == [[3, 0]]


def test_integer_words_are_kept():
    """NF-8: -8 is a code that the encoder itself never chooses."""
    encoded = import_words(nf.Q4, (1, 2), np.int8([[-8, 7]]), np.uint16([[0x3C00]]))
    assert decode_tensor(encoded, nf.Q4, nf.ROW_SPLIT, (1, 2)).tolist() == [[-8, 7]]


@pytest.mark.parametrize(
    "format, codes, scales, divisor, message",
    [
        (nf.NVFP4, np.uint8([[0]]), np.uint8([[0x7F]]), 1.0, "0x7E"),
        (nf.NVFP4, np.uint8([[0]]), np.uint8([[0]]), 0.0, "divisor"),
        (nf.FP8, np.uint8([[0x7F]]), np.uint16([0x3F80]), None, "NaN"),
        (nf.Q8, np.int8([[-128]]), np.uint16([[0x3C00]]), None, "-127..127"),
        (nf.Q4, np.int8([[8]]), np.uint16([[0x3C00]]), None, "-8..7"),
        (nf.Q4, np.int8([[1]]), np.uint16([[0]]), None, "zero"),
    ],
)
def test_illegal_words_are_refused(format, codes, scales, divisor, message):
    """NF-8, NF-60."""
    with pytest.raises(NumericError, match=message):
        import_words(format, (1, 1), codes, scales, divisor)


@pytest.mark.parametrize(
    "format, codes, scales, divisor, message",
    [
        (nf.BF16, np.uint16([[0]]), np.uint8([[0]]), None, "no codes and scales"),
        (nf.NVFP4, np.uint8([[0]]), np.uint8([[0]]), None, "needs its divisor"),
        (nf.NVFP4, np.uint8([[0, 0]]), np.uint8([[0]]), 1.0, "codes do not fit"),
        (nf.FP8, np.uint8([[0]]), np.uint16([[0]]), None, "scales do not fit"),
        (nf.Q4, np.uint8([[0]]), np.uint16([[0]]), None, "codes do not fit"),
    ],
)
def test_words_of_the_wrong_kind_are_refused(format, codes, scales, divisor, message):
    """NF-8."""
    with pytest.raises(UsageError, match=message):
        import_words(format, (1, 1), codes, scales, divisor)
