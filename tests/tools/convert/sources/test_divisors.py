"""Multipliers become divisors: S-55 and S-56."""

from __future__ import annotations

import numpy as np
import pytest

from ninfer_formats.codecs import nvfp4
from ninfer_tools.convert.sources.divisors import PRODUCTS, invert_multiplier


def decoded(divisor):
    """Decode one block of every code under every scale word, as an artifact does."""
    scales = np.arange(1, 0x7F, dtype=np.uint8)[:, None]
    codes = np.tile(np.arange(16, dtype=np.uint8), (len(scales), 1))
    return codes, scales, nvfp4.decode(codes, scales, np.full(len(scales), divisor, "<f4"))


def source(multiplier):
    products = decoded(np.float32(1))[2]
    return products * np.float32(multiplier)


@pytest.mark.parametrize("power", [-30, -12, -3, 0, 5, 20])
def test_powers_of_two_invert_exactly(power):
    """S-56."""
    assert invert_multiplier(np.float32(2.0**power)) == (np.float32(2.0**-power), True)


def test_every_product_is_known():
    """S-55: 7 magnitudes times 126 scale words, exact in float32."""
    assert PRODUCTS[0] == 0.5 * 2.0**-9 and PRODUCTS[-1] == 6 * 448
    assert len(np.unique(np.abs(decoded(np.float32(1))[2]))) == len(PRODUCTS) + 1


def test_weights_differ_by_at_most_one_unit_in_the_last_place():
    """S-55: 2^-23 relative, for any multiplier; S-56: the flag tells when none differs."""
    random = np.random.default_rng(5)
    flags = []
    for multiplier in np.exp2(random.uniform(-60, 40, 400)).astype("<f4"):
        divisor, exact = invert_multiplier(multiplier)
        got, want = decoded(divisor)[2], source(multiplier)
        difference = np.abs(got.astype(np.float64) - want)
        assert (difference <= 2.0**-23 * np.abs(want)).all(), multiplier
        assert exact == np.array_equal(got, want), multiplier
        flags.append(exact)
    assert 0.05 < np.mean(flags) < 0.5


def test_no_neighbour_of_the_reciprocal_would_be_exact_where_it_is_not():
    """S-55: the nearest float32 is the best there is."""
    random = np.random.default_rng(6)
    for multiplier in np.exp2(random.uniform(-20, 0, 100)).astype("<f4"):
        divisor, exact = invert_multiplier(multiplier)
        for towards in (0, np.inf):
            other = PRODUCTS / np.nextafter(divisor, np.float32(towards))
            assert exact or not np.array_equal(other, PRODUCTS * multiplier)
