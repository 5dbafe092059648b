"""Laws of row_split_k128_v1: `specs/layouts.md`, rules LY-20 to LY-26."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import scalar_layouts as oracle
from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.grouped_int import CODES
from ninfer_formats.layouts import row_split
from ninfer_formats.tensors import encode_tensor, import_words

FORMATS = [nf.Q4, nf.Q5, nf.Q6, nf.Q8]


def test_q4_bytes():
    """LY-20 to LY-22, LY-26: largest value 7, so scale 1; codes 7 -7 | 1 2 | -1 0."""
    values = np.zeros((1, 64), np.float32)
    values[0, :5] = [7, -7, 1, 2, -1]
    encoded = encode_tensor(values, nf.Q4)
    assert encoded.size == 260
    assert encoded[:4].tobytes().hex() == "97210f00"
    assert not encoded[4:256].any()
    assert encoded[256:].tobytes().hex() == "003c0000"


def test_q5_bytes():
    """LY-20 to LY-23: [2, 130] takes 528 bytes; 15 = 01111, -1 = 11111, -15 = 10001."""
    values = np.zeros((2, 130), np.float32)
    values[0, [0, 1, 8]] = [15, -1, -15]
    values[0, [128, 129]] = [15, -15]
    values[1, 64] = 7.5
    encoded = encode_tensor(values, nf.Q5)
    assert encoded.size == 528
    # Groups of row 0 at base 0, 32, 64, 96 and high 256, 264, 272, 280; row 1 from 128 and 288 on.
    expected = {0: 0xFF, 4: 0x01, 64: 0x1F, 160: 0x0F, 256: 0x02, 257: 0x01, 272: 0x02}
    # Scales 1, 0, 1, 0 of row 0 and 0, 0.5, 0, 0 of row 1.
    expected |= {513: 0x3C, 517: 0x3C, 523: 0x38}
    assert {int(i): int(encoded[i]) for i in np.flatnonzero(encoded)} == expected


def test_q6_bytes():
    """LY-22, LY-24: 31 = 011111, -31 = 100001, -1 = 111111, 1 = 000001, 16 = 010000."""
    values = np.zeros((1, 64), np.float32)
    values[0, :5] = [31, -31, -1, 1, 16]
    encoded = encode_tensor(values, nf.Q6)
    assert encoded.size == 516
    # High pairs 1, 2, 3, 0 make 0x39; then 1.
    expected = {0: 0x1F, 1: 0x1F, 256: 0x39, 257: 0x01, 513: 0x3C}
    assert {int(i): int(encoded[i]) for i in np.flatnonzero(encoded)} == expected


def test_q8_bytes():
    """LY-21, LY-25: 32 values are one of four groups; scale 1."""
    values = np.zeros((1, 32), np.float32)
    values[0, :3] = [127, -127, -1]
    encoded = encode_tensor(values, nf.Q8)
    assert encoded.size == 264
    assert encoded[:4].tobytes().hex() == "7f81ff00"
    assert encoded[256:].tobytes().hex() == "003c000000000000"


def words(format: str, n: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng, known = np.random.default_rng(seed), CODES[format]
    codes = rng.integers(known.low, known.high + 1, (n, k)).astype(np.int8)
    groups = -(-k // nf.FORMATS[format].group)
    return codes, rng.integers(1, 0x7C00, (n, groups)).astype(np.uint16)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("n, k", [(1, 1), (2, 64), (3, 96), (2, 130), (5, 256), (1, 1152)])
def test_packing_agrees_with_the_word_by_word_oracle(format, n, k):
    """LY-20 to LY-26."""
    codes, scales = words(format, n, k, seed=k)
    want = oracle.row_split_bytes(codes.tolist(), scales.tolist(), nf.FORMATS[format].bits)
    assert import_words(format, (n, k), codes, scales).tobytes() == want


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(FORMATS),
    st.sampled_from([1, 2, 96, 128, 200]),
    st.sampled_from([1, 64, 96, 130, 256, 1152, 4304]),
    st.integers(0, 2**32),
)
def test_unpacking_undoes_packing(format, n, k, seed):
    """LY-20 to LY-26."""
    codes, scales = words(format, n, k, seed)
    again = row_split.unpack(row_split.pack(codes, scales, format), format, k)
    assert (again[0] == codes).all() and (again[1] == scales).all()
