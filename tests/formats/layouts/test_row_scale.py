"""Laws of row_scale_v1: `specs/layouts.md`, rule LY-40."""

from __future__ import annotations

import numpy as np
import pytest

from builders import scalar_layouts as oracle
from ninfer_formats import numeric_formats as nf
from ninfer_formats.layouts import row_scale
from ninfer_formats.tensors import encode_tensor, import_words


def test_fp8_bytes():
    """LY-40: 448 gives scale 1 (0x3F80); -0 is 0x80, 1 is 0x38, the tie 8.5 goes to 0x50 (8)."""
    values = np.array([[448, -0.0, 1, 8.5], [0, 0, 0, -2]], np.float32)
    encoded = encode_tensor(values, nf.FP8)
    assert encoded.size == 256 + 4
    assert encoded[:8].tobytes().hex() == "7e803850" + "000000fe"
    assert not encoded[8:256].any()
    # 2 / 448 = 0.00446429 rounds to 0x3B92.
    assert encoded[256:].tobytes().hex() == "803f" + "923b"


@pytest.mark.parametrize("n, k", [(1, 1), (2, 96), (96, 130), (3, 1152)])
def test_packing_agrees_with_the_word_by_word_oracle_and_is_undone(n, k):
    """LY-40."""
    rng = np.random.default_rng(k)
    codes = rng.integers(0, 0x7F, (n, k)).astype(np.uint8)
    scales = rng.integers(1, 0x7F80, n).astype(np.uint16)
    want = oracle.row_scale_bytes(codes.tolist(), scales.tolist())
    assert import_words(nf.FP8, (n, k), codes, scales).tobytes() == want
    again = row_scale.unpack(row_scale.pack(codes, scales))
    assert (again[0] == codes).all() and (again[1] == scales).all()
