"""Laws of checking stored words: `specs/numeric-formats.md`, rules NF-21, 22, 31, 41, 60, 62."""

from __future__ import annotations

import numpy as np
import pytest

from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import NumericError
from ninfer_formats.layouts.geometry import plan_tensor
from ninfer_formats.layouts.planes import split_planes
from ninfer_formats.tensors import decode_rows, decode_tensor, encode_tensor, find_illegal_words

MATRICES = [nf.Q4, nf.Q5, nf.Q6, nf.Q8, nf.NVFP4, nf.FP8]
DIRECT = [nf.BF16, nf.FP32]


class Stored:
    """A clean encoded tensor whose planes a test may spoil."""

    def __init__(self, format: str, shape: tuple[int, ...] = (130, 200)) -> None:
        self.format, self.shape = format, shape
        self.layout = nf.FORMATS[format].layout
        values = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
        self.buffer = encode_tensor(values, format)
        self.planes = split_planes(self.buffer, plan_tensor(format, self.layout, shape))

    def words(self, plane: str, kind: str = "<u2") -> np.ndarray:
        return self.planes[plane].view(kind)

    def find(self) -> list:
        return find_illegal_words(self.buffer, self.format, self.layout, self.shape)

    def decode(self, **options) -> np.ndarray:
        return decode_tensor(self.buffer, self.format, self.layout, self.shape, **options)


def summary(findings: list) -> list[tuple]:
    return [(f.kind, f.severity, f.row, f.column, f.group, f.count) for f in findings]


@pytest.mark.parametrize("format", MATRICES + DIRECT)
@pytest.mark.parametrize("shape", [(130, 200), (1, 1), (128, 64), (96, 130)])
def test_encoded_tensor_is_clean(format, shape):
    """NF-60: what the encoders write has no finding."""
    assert Stored(format, shape).find() == []


@pytest.mark.parametrize("format", [nf.Q4, nf.Q5, nf.Q6, nf.Q8])
@pytest.mark.parametrize(
    "word, kind",
    [(0x8000, "negative_scale"), (0xBC00, "negative_scale"), (0x7C00, "non_finite_scale"),
     (0x7E00, "non_finite_scale"), (0x0000, "zero_scale")],
)  # fmt: skip
def test_illegal_float16_scale_is_found(format, word, kind):
    """NF-21, NF-60: -0, negative, infinite, NaN, and zero over codes."""
    stored = Stored(format)
    stored.words("scale")[7, 2] = word
    stored.words("scale")[9, 1] = word
    assert summary(stored.find()) == [(kind, "error", 7, None, 2, 2)]
    with pytest.raises(NumericError, match=r"row 7, group 2; 2 in all"):
        stored.decode()


@pytest.mark.parametrize("format", [nf.Q5, nf.Q6])
def test_zero_scale_is_illegal_over_high_bits_alone(format):
    """NF-21: a code of 16 has no bit in the base plane."""
    stored = Stored(format, (1, 64))
    for plane in stored.planes.values():
        plane[:] = 0
    stored.planes["high"][0, 0] = 1
    assert summary(stored.find()) == [("zero_scale", "error", 0, None, 0, 1)]


def test_code_minus_128_is_found():
    """NF-22, NF-60."""
    stored = Stored(nf.Q8)
    stored.planes["base"][100, 33] = 0x80
    assert summary(stored.find()) == [("illegal_code", "error", 100, 33, None, 1)]


@pytest.mark.parametrize("word", [0x7F, 0xFF])
def test_fp8_nan_code_is_found(word):
    """NF-31, NF-60."""
    stored = Stored(nf.FP8)
    stored.planes["codes"][100, 33] = word
    assert summary(stored.find()) == [("illegal_code", "error", 100, 33, None, 1)]
    with pytest.raises(NumericError, match="row 100, column 33"):
        stored.decode()


@pytest.mark.parametrize("word, kind", [(0x8000, "negative_scale"), (0x7F80, "non_finite_scale")])
def test_illegal_bfloat16_row_scale_is_found(word, kind):
    """NF-31, NF-60."""
    stored = Stored(nf.FP8)
    stored.words("scale")[99] = word
    assert summary(stored.find()) == [(kind, "error", 99, 0, None, 1)]


def test_zero_row_scale_allows_zeros_of_both_signs_only():
    """NF-31, NF-60."""
    stored = Stored(nf.FP8)
    stored.words("scale")[[4, 50]] = 0
    stored.planes["codes"][[4, 50]] = 0x80
    stored.planes["codes"][4, 9] = 0x00
    assert stored.find() == []
    stored.planes["codes"][50, 7] = 0x01
    assert summary(stored.find()) == [("zero_scale", "error", 50, 7, None, 1)]


@pytest.mark.parametrize("word", [0x7F, 0x80, 0xB8])
def test_illegal_block_scale_is_found_through_the_swizzle(word):
    """NF-41, NF-60: row 129 is row 1 of tile row 1; block 9 is block 1 of its third tile."""
    stored = Stored(nf.NVFP4)
    stored.planes["scales"][1, 2 * 512 + 1 * 16 + 1] = word
    assert summary(stored.find()) == [("illegal_scale", "error", 129, None, 9, 1)]
    with pytest.raises(NumericError, match="row 129, group 9"):
        stored.decode()


def test_zero_block_scale_over_codes_is_a_notice():
    """NF-62: it decodes to zeros, so decoding goes on."""
    stored = Stored(nf.NVFP4)
    stored.planes["scales"][0, 0] = 0
    assert summary(stored.find()) == [("zero_scale", "notice", 0, None, 0, 1)]
    assert not stored.decode()[0, :16].any()


@pytest.mark.parametrize("value", [0.0, -448.0, np.inf, np.nan])
def test_illegal_divisor_is_found(value):
    """NF-41, NF-60."""
    stored = Stored(nf.NVFP4)
    stored.words("divisor", "<f4")[0] = value
    assert summary(stored.find()) == [("illegal_divisor", "error", 0, None, None, 1)]
    with pytest.raises(NumericError, match="divisor"):
        stored.decode()


def test_divisor_that_makes_values_infinite_is_found():
    """NF-60: 6 * 448 / 7.8e-36 is past 3.4028e38, 4 * 448 / 7.8e-36 is not."""
    stored = Stored(nf.NVFP4)
    stored.planes["codes"][:] = stored.planes["scales"][:] = 0
    stored.words("divisor", "<f4")[0] = 7.8e-36
    # Row 1 of tile row 1, block 9 in its third tile; columns 144 to 159.
    stored.planes["scales"][1, 2 * 512 + 1 * 16 + 1] = 0x7E
    stored.planes["codes"][129, 73] = 0x66
    assert stored.find() == []
    stored.planes["codes"][129, 73] = 0xF6
    assert summary(stored.find()) == [("overflow", "error", 129, 147, None, 1)]
    # Every word is legal by itself, so decoding goes on, strict or not.
    assert np.isinf(stored.decode()[129, 147])


def test_fp8_scale_that_makes_values_infinite_is_found():
    """NF-60: 0x7F00 is 1.7e38; 2 * 1.7e38 is past 3.4028e38, 1.875 * 1.7e38 is not."""
    stored = Stored(nf.FP8)
    stored.planes["codes"][:] = 0x3F
    stored.words("scale")[[4, 99]] = 0x7F00
    assert stored.find() == []
    stored.planes["codes"][99, 33] = 0xC0
    assert summary(stored.find()) == [("overflow", "error", 99, 33, None, 1)]


@pytest.mark.parametrize("format", [nf.FP8, nf.NVFP4])
def test_encoded_values_near_the_largest_stay_finite(format):
    """NF-60: 3.38e38 as bfloat16 is 0x7F7E."""
    values = np.full((2, 128), 3.38e38, np.float32)
    values[1] = -1e38
    decoded = decode_tensor(
        encode_tensor(values, format), format, nf.FORMATS[format].layout, (2, 128)
    )
    assert np.isfinite(decoded).all()


@pytest.mark.parametrize("format", [nf.Q4, nf.Q5, nf.Q6, nf.Q8, nf.NVFP4])
def test_padding_past_k_must_be_zero(format):
    """NF-60, LY-20, LY-30: K = 200; 256 lanes are stored, 208 in nvfp4."""
    stored = Stored(format)
    stored.planes["codes" if format == nf.NVFP4 else "base"][3, -1] = 0x10
    lane = {nf.Q8: 255, nf.NVFP4: 207}.get(format, 255)
    assert summary(stored.find()) == [("padding", "error", 3, lane, None, 1)]


@pytest.mark.parametrize("format", [nf.Q5, nf.Q6])
def test_padding_in_the_high_plane_must_be_zero(format):
    """NF-60, LY-20."""
    stored = Stored(format)
    stored.planes["high"][3, -1] = 0x80
    assert summary(stored.find()) == [("padding", "error", 3, 255, None, 1)]


def test_scales_of_padded_groups_must_be_zero():
    """NF-60, LY-20, LY-32: K = 130 has 3 of 4 groups of 64, and 9 of 12 blocks of 16."""
    stored = Stored(nf.Q4, (96, 130))
    stored.words("scale")[5, 3] = 1
    assert summary(stored.find()) == [("padding", "error", 5, None, 3, 1)]
    stored = Stored(nf.NVFP4, (96, 130))
    stored.planes["scales"][0, 2 * 512 + 5 * 16 + 3] = 1
    assert summary(stored.find()) == [("padding", "error", 5, None, 11, 1)]


def test_scales_past_the_last_row_must_be_zero():
    """NF-60, LY-32: of 128 rows in the tile, 96 are there."""
    stored = Stored(nf.NVFP4, (96, 130))
    stored.planes["scales"][0, 3 * 4] = 1
    assert summary(stored.find()) == [("padding", "error", 96, None, 0, 1)]


@pytest.mark.parametrize("format, word", [(nf.BF16, 0x7F80), (nf.BF16, 0xFFC1), (nf.FP32, None)])
def test_non_finite_value_is_found_but_decodes(format, word):
    """NF-60: every bit pattern of a direct format is legal."""
    stored = Stored(format)
    if word is None:
        stored.words("values", "<f4")[70, 3] = -np.inf
    else:
        stored.words("values")[70, 3] = word
    assert summary(stored.find()) == [("non_finite", "error", 70, 3, None, 1)]
    assert not np.isfinite(stored.decode()[70, 3])


def test_bytes_in_a_gap_are_a_notice():
    """NF-62, LY-3: q5 [2, 130] has its high plane at 256..320 and its scales at 512."""
    stored = Stored(nf.Q5, (2, 130))
    stored.buffer[[400, 500]] = 1
    assert summary(stored.find()) == [("gap", "notice", None, None, None, 2)]


def test_trouble_in_other_rows_does_not_stop_a_row_range():
    """NF-60: only the rows that are asked for are checked."""
    stored = Stored(nf.Q8)
    stored.words("scale")[7, 0] = 0x8000
    arguments = (stored.buffer, stored.format, stored.layout, stored.shape)
    assert decode_rows(*arguments, 8, 130).shape == (122, 200)
    with pytest.raises(NumericError, match="row 7"):
        decode_rows(*arguments, 7, 8)


def test_lenient_decoding_takes_any_word():
    """NF-60: `strict=False` decodes what upstream's integer decoders decode."""
    stored = Stored(nf.Q8, (1, 32))
    stored.words("scale")[0, 0] = 0xC000
    stored.planes["base"][0, 0] = 0x80
    assert stored.decode(strict=False)[0, 0] == 256
