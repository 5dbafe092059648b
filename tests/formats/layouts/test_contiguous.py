"""Laws of contiguous_le_v1: `specs/layouts.md`, rules LY-10 and LY-11."""

from __future__ import annotations

import numpy as np
import pytest

from ninfer_formats.tensors import decode_tensor, encode_tensor

LAYOUT = "contiguous_le_v1"


def test_words_lie_in_c_order():
    """LY-10: 1, 2, 3, 4 as bfloat16."""
    encoded = encode_tensor(np.array([[1, 2], [3, 4]], np.float32), "bf16")
    assert encoded.tobytes().hex() == "803f" + "0040" + "4040" + "8040"


def test_scalar_is_one_word():
    """LY-11."""
    encoded = encode_tensor(np.array(2.5, np.float32), "fp32")
    assert encoded.tobytes().hex() == "00002040"
    assert decode_tensor(encoded, "fp32", LAYOUT, ()).shape == ()
    assert decode_tensor(encoded, "fp32", LAYOUT, ()) == 2.5


@pytest.mark.parametrize("shape", [(5,), (3, 7), (2, 2, 5), (1,) * 16])
def test_every_rank_round_trips(shape):
    """LY-10."""
    values = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    assert (decode_tensor(encode_tensor(values, "fp32"), "fp32", LAYOUT, shape) == values).all()


def test_memory_order_of_the_source_does_not_matter():
    """LY-10."""
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    fortran = np.asfortranarray(values)
    for format in ("bf16", "fp32"):
        assert (encode_tensor(fortran, format) == encode_tensor(values, format)).all()
