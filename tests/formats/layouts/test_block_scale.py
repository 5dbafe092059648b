"""Laws of block_scale_k16_m128x4_v1: `specs/layouts.md`, rules LY-30 to LY-34."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import scalar_layouts as oracle
from ninfer_formats import numeric_formats as nf
from ninfer_formats.layouts import block_scale
from ninfer_formats.tensors import encode_tensor, import_words


def test_nvfp4_bytes():
    """LY-30 to LY-34: largest value 6, so divisor 448 and scale 448 (0x7E); -0 is code 8."""
    values = np.zeros((1, 16), np.float32)
    values[0, :8] = [6, -6, 0.5, -0.0, 0.25, 0.75, 1.25, 5]
    encoded = encode_tensor(values, nf.NVFP4)
    assert encoded.size == 256 + 512 + 4
    assert encoded[:8].tobytes().hex() == "f781206200000000"
    assert encoded[256] == 0x7E and not encoded[257:768].any()
    assert encoded[768:].tobytes().hex() == "0000e043"


def test_scale_of_every_row_and_block_lies_where_the_formula_says():
    """LY-31, LY-32: 200 rows (2 tile rows), 72 blocks (18 tiles); 16-bit marks in two halves."""
    n, groups = np.indices((200, 72))
    offset = ((n // 128) * 18 + groups // 4) * 512 + (n % 32) * 16
    offset += ((n % 128) // 32) * 4 + groups % 4
    for shift in (0, 8):
        marks = ((n * 72 + groups) >> shift).astype(np.uint8)
        assert (block_scale.swizzle(marks).reshape(-1)[offset] == marks).all()


def test_known_scale_offsets():
    """LY-31: row 1 is 16 on, row 32 is 4 on, block 4 the next tile, row 128 the next tile row."""
    scales = np.zeros((129, 8), np.uint8)
    scales[1, 0], scales[32, 0], scales[0, 1], scales[0, 4], scales[128, 0] = 1, 2, 3, 4, 5
    flat = block_scale.swizzle(scales).reshape(-1)
    assert {int(i): int(flat[i]) for i in np.flatnonzero(flat)} == {
        16: 1, 4: 2, 1: 3, 512: 4, 1024: 5,
    }  # fmt: skip


def words(n: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 16, (n, k)).astype(np.uint8)
    return codes, rng.integers(1, 0x7F, (n, -(-k // 16))).astype(np.uint8)


@pytest.mark.parametrize("n, k", [(1, 1), (2, 64), (96, 96), (130, 130), (3, 1152)])
def test_packing_agrees_with_the_word_by_word_oracle(n, k):
    """LY-30 to LY-34."""
    codes, scales = words(n, k, seed=k)
    packed = block_scale.pack_codes(codes)[:, : -(-k // 2)]
    encoded = import_words(nf.NVFP4, (n, k), packed, scales, 2.5)
    divisor = bytes.fromhex("00002040")
    assert encoded.tobytes() == oracle.block_scale_bytes(codes.tolist(), scales.tolist(), divisor)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([1, 2, 96, 128, 200]),
    st.sampled_from([1, 64, 96, 130, 256, 1152, 4304]),
    st.integers(0, 2**32),
)
def test_unpacking_undoes_packing(n, k, seed):
    """LY-30 to LY-34."""
    codes, scales = words(n, k, seed)
    divisors = np.float32([1.5, 3])
    nibbles, tiles = block_scale.pack_codes(codes), block_scale.swizzle(scales)
    assert (block_scale.unpack_codes(nibbles)[:, :k] == codes).all()
    assert (block_scale.gather_scales(tiles, 0, n, scales.shape[1]) == scales).all()
    plane = block_scale.pack_divisors(divisors)
    assert block_scale.unpack_divisors(plane).tolist() == [1.5, 3]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 299), st.integers(1, 300), st.integers(1, 12))
def test_gathering_and_scattering_agree_with_the_rows(begin, length, groups):
    """LY-31, LY-52: at any begin and end."""
    scales = np.random.default_rng(begin).integers(0, 255, (300, groups)).astype(np.uint8)
    tiles, end = block_scale.swizzle(scales), min(300, begin + length)
    assert (block_scale.gather_scales(tiles, begin, end, groups) == scales[begin:end]).all()
    scales[begin:end] ^= 0xFF
    block_scale.scatter_scales(tiles, begin, scales[begin:end])
    assert (tiles == block_scale.swizzle(scales)).all()
