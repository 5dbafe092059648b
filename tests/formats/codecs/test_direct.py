"""Laws of bf16, fp32 and int32: `specs/numeric-formats.md`, rules NF-10 to NF-12."""

from __future__ import annotations

import numpy as np
import pytest

from ninfer_formats.errors import NumericError, UsageError
from ninfer_formats.tensors import decode_tensor, encode_tensor

LAYOUT = "contiguous_le_v1"


def test_bf16_bytes_are_the_rounded_words():
    """NF-10, LY-1: 1 is 0x3F80, 1 + 2^-8 is a tie with it, -2 is 0xC000."""
    encoded = encode_tensor(np.array([1, 1 + 2**-8, -2], np.float32), "bf16")
    assert encoded.tobytes().hex() == "803f803f00c0"


def test_bf16_keeps_every_pattern_of_a_bf16_source():
    """NF-10."""
    words = np.arange(2**16, dtype=np.uint16)
    encoded = encode_tensor(words, "bf16")
    assert (encoded.view(np.uint16) == words).all()
    values = decode_tensor(encoded, "bf16", LAYOUT, words.shape)
    assert (values.view(np.uint32) == words.astype(np.uint32) << 16).all()


def test_fp32_keeps_every_pattern():
    """NF-11: 1, -0, a signalling NaN with payload."""
    bits = np.array([0x3F800000, 0x80000000, 0x7F800001], np.uint32)
    encoded = encode_tensor(bits.view(np.float32), "fp32")
    assert encoded.tobytes().hex() == "0000803f000000800100807f"
    assert (decode_tensor(encoded, "fp32", LAYOUT, (3,)).view(np.uint32) == bits).all()


def test_int32_is_twos_complement():
    """NF-12."""
    encoded = encode_tensor(np.array([[-1, 258]], np.int64), "int32")
    assert encoded.tobytes().hex() == "ffffffff02010000"
    decoded = decode_tensor(encoded, "int32", LAYOUT, (1, 2))
    assert decoded.dtype == np.int32 and decoded.tolist() == [[-1, 258]]


def test_int32_names_the_first_value_outside():
    """NF-12."""
    with pytest.raises(NumericError, match=r"element 1.*2147483648, 2 in all"):
        encode_tensor(np.array([0, 2**31, 2**40]), "int32")


def test_int32_refuses_fractions():
    """NF-12."""
    with pytest.raises(UsageError, match="whole numbers"):
        encode_tensor(np.zeros(2, np.float32), "int32")
