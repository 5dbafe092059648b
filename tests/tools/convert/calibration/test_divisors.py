"""Divisors from largest inputs, and what goes before what."""

from __future__ import annotations

import numpy as np
import pytest

from ninfer_tools.convert.calibration.divisors import derive_divisor


def test_divisor_is_2688_over_the_largest_input():
    """V-113: the largest value then has scale 448 and code 6."""
    assert derive_divisor(2688.0) == np.float32(1)
    assert derive_divisor(4.0) == np.float32(672)
    divisor = derive_divisor(4.0)
    assert divisor is not None and divisor.dtype == np.float32
    assert divisor * np.float32(4) / 6 == 448


def test_divisor_is_the_quotient_rounded_once():
    """V-113: 2688 / 3.1 = 867.09677…; its float32 neighbours are 867.09674 and 867.0968."""
    assert derive_divisor(float(np.float32(3.1))) == np.float32(2688) / np.float32(3.1)
    random = np.random.default_rng(1)
    for largest in random.uniform(1e-3, 1e3, 500).astype(np.float32):
        assert derive_divisor(float(largest)) == np.float32(2688) / largest


@pytest.mark.parametrize("largest", [None, 0.0, 1e-40])
def test_inputs_that_say_nothing_give_no_divisor(largest):
    """V-113: 2688 / 1e-40 is above float32."""
    assert derive_divisor(largest) is None


def test_the_largest_float32_still_has_a_divisor():
    """V-113."""
    divisor = derive_divisor(float(np.finfo(np.float32).max))
    assert divisor is not None and 0 < divisor < 1e-35
