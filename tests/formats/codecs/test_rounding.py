"""Laws of rounding: `specs/numeric-formats.md`, rules NF-1 to NF-6."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from builders import scalar_codecs as oracle
from ninfer_formats.codecs import rounding
from ninfer_formats.errors import UsageError


def test_e4m3_table_holds_the_value_of_every_word():
    """NF-3, all 256 words."""
    for word in range(256):
        if word & 0x7F == 0x7F:
            assert np.isnan(rounding.E4M3_VALUES[word])
        else:
            sign = -1 if word & 0x80 else 1
            assert Fraction(float(rounding.E4M3_VALUES[word])) == sign * oracle.e4m3_value(
                word & 0x7F
            )
            assert np.signbit(rounding.E4M3_VALUES[word]) == bool(word & 0x80)
    assert rounding.E4M3_VALUES[[0x01, 0x07, 0x08, 0x38, 0x7E]].tolist() == [
        2**-9, 7 * 2**-9, 2**-6, 1.0, 448.0,
    ]  # fmt: skip


def test_e2m1_table_holds_the_value_of_every_word():
    """NF-4, all 16 words."""
    magnitudes = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert rounding.E2M1_VALUES.tolist() == magnitudes + [-x for x in magnitudes]
    assert np.signbit(rounding.E2M1_VALUES[8])


@pytest.mark.parametrize("name", ["e4m3", "e2m1"])
def test_ties_round_to_even_word_and_neighbours_of_ties_to_the_nearer(name):
    """NF-1, NF-3, NF-4: every midpoint, and the floats next to it."""
    table, encode, last, sign = {
        "e4m3": (rounding.E4M3_VALUES, rounding.round_to_e4m3, 0x7E, 0x80),
        "e2m1": (rounding.E2M1_VALUES, rounding.round_to_e2m1, 7, 8),
    }[name]
    lower = np.arange(last, dtype=np.uint8)
    middle = (table[lower] + table[lower + 1]) / np.float32(2)
    even = np.where(lower % 2 == 0, lower, lower + 1)
    infinity = np.float32(np.inf)
    assert encode(middle).tolist() == even.tolist()
    assert encode(-middle).tolist() == (even | sign).tolist()
    assert encode(np.nextafter(middle, -infinity)).tolist() == lower.tolist()
    assert encode(np.nextafter(middle, infinity)).tolist() == (lower + 1).tolist()


def test_e2m1_midpoints_are_those_of_the_specification():
    """NF-4: 0.25 -> 0, 0.75 -> 1, 1.25 -> 1, 1.75 -> 2, 2.5 -> 2, 3.5 -> 4, 5 -> 4."""
    middle = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], np.float32)
    assert rounding.round_to_e2m1(middle).tolist() == [0, 2, 2, 4, 4, 6, 6]


def test_every_legal_word_is_its_own_rounding():
    """NF-3, NF-4: -0 included."""
    words = np.array([w for w in range(256) if w & 0x7F != 0x7F], np.uint8)
    assert (rounding.round_to_e4m3(rounding.E4M3_VALUES[words]) == words).all()
    assert (rounding.round_to_e2m1(rounding.E2M1_VALUES) == np.arange(16)).all()


def test_narrow_formats_saturate():
    """NF-3, NF-4."""
    large = np.array([449, 480, 1e30, -1e30, np.inf], np.float32)
    assert rounding.round_to_e4m3(large).tolist() == [0x7E, 0x7E, 0x7E, 0xFE, 0x7E]
    assert rounding.round_to_e2m1(large).tolist() == [7, 7, 7, 15, 7]


def test_rounding_agrees_with_exact_fractions():
    """NF-1: random magnitudes from below the smallest subnormal to above the largest value."""
    rng = np.random.default_rng(1)
    values = (rng.standard_normal(1500) * 2.0 ** rng.integers(-14, 10, 1500)).astype(np.float32)
    exact = [(Fraction(float(x)), bool(x < 0)) for x in values]
    assert rounding.round_to_e4m3(values).tolist() == [oracle.e4m3_word(*x) for x in exact]
    assert rounding.round_to_e2m1(values).tolist() == [oracle.e2m1_word(*x) for x in exact]


def test_snapping_gives_the_value_of_the_e2m1_word():
    """NF-4: the search rounds as the encoder does."""
    grid = np.arange(0, 9, 2**-6, dtype=np.float32)
    values = np.concatenate([grid, np.nextafter(grid, np.float32(0)), np.float32([1e-40, 5e5])])
    snapped = rounding.snap_to_e2m1(values, np.empty_like(values), np.empty_like(values))
    assert (snapped == rounding.E2M1_VALUES[rounding.round_to_e2m1(values)]).all()


def test_every_bfloat16_word_survives_widening():
    """NF-2: NaN payloads too."""
    words = np.arange(2**16, dtype=np.uint16)
    assert (rounding.round_to_bf16(rounding.widen_bf16(words)) == words).all()


def test_bfloat16_ties_go_to_even_and_overflow_to_infinity():
    """NF-1, NF-2: 0x3F808000 is halfway between 0x3F80 and 0x3F81."""
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x00008000, 0x00018000],
                    np.uint32)  # fmt: skip
    words = rounding.round_to_bf16(bits.view(np.float32))
    assert words.tolist() == [0x3F80, 0x3F82, 0x3F81, 0x7F80, 0x0000, 0x0002]


def test_nan_never_rounds_to_infinity():
    """NF-2: 0x7F800001 has its payload in the lost half only."""
    bits = np.array([0x7F800001, 0xFFFFFFFF], np.uint32)
    assert rounding.round_to_bf16(bits.view(np.float32)).tolist() == [0x7FC0, 0xFFFF]


def test_float16_keeps_subnormals_and_overflows_to_infinity():
    """NF-1, NF-2: 2^-25 is a tie with zero; 65520 is a tie with what would be 65536."""
    values = np.array([2**-24, 2**-25, 1.5 * 2**-24, 65519, 65520], np.float32)
    assert rounding.round_to_f16(values).tolist() == [1, 0, 2, 0x7BFF, 0x7C00]


def test_division_rounds_the_float64_quotient():
    """NF-5."""
    rng = np.random.default_rng(2)
    values = rng.random(300).astype(np.float32)
    for constant in (7, 15, 31, 127, 448):
        want = [float(oracle.quotient(Fraction(float(x)), Fraction(constant))) for x in values]
        assert rounding.divide(values, float(constant)).tolist() == want


def test_float64_is_refused_instead_of_rounded_twice():
    """NF-6."""
    with pytest.raises(UsageError, match="float64"):
        rounding.widen(np.zeros(1))


def test_float16_and_bfloat16_widen_exactly():
    """NF-6: 0x3C01 is 1 + 2^-10 as float16; 0x3F81 is 1 + 2^-7 as bfloat16."""
    assert rounding.widen(np.array([0x3C01], np.uint16).view(np.float16))[0] == 1 + 2**-10
    assert rounding.widen(np.array([0x3F81], np.uint16))[0] == 1 + 2**-7
