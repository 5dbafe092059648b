"""Laws of the `search` encoder: `specs/numeric-formats.md`, rules NF-48 and NF-49."""

from __future__ import annotations

import numpy as np
import pytest

from ninfer_formats.codecs import nvfp4, nvfp4_search, rounding
from ninfer_formats.codecs.encoding import encode_nvfp4
from ninfer_formats.tensors import decode_tensor

LAYOUT = "block_scale_k16_m128x4_v1"


def draw(name: str, shape: tuple[int, int], seed: int = 11) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = {
        "gaussian": lambda: rng.standard_normal(shape),
        "laplace": lambda: rng.laplace(size=shape),
        "student": lambda: rng.standard_t(4, size=shape),
    }[name]()
    return values.astype(np.float32)


def squared_error(values: np.ndarray, method: str) -> float:
    decoded = decode_tensor(encode_nvfp4(values, method), "nvfp4", LAYOUT, values.shape)
    return float(np.square(values.astype(np.float64) - decoded).sum())


@pytest.mark.parametrize("name, gain", [("gaussian", 0.25), ("laplace", 0.19), ("student", 0.17)])
def test_search_lowers_the_squared_error_by_the_promised_share(name, gain):
    """NF-48: at least 25, 19 and 17 %."""
    values = draw(name, (384, 1024))
    assert squared_error(values, "search") < (1 - gain) * squared_error(values, "absmax")


def block_errors(values, codes, scales, divisor) -> np.ndarray:
    decoded = nvfp4.decode(codes, scales, np.full(len(values), divisor))
    return np.square(values.astype(np.float64) - decoded).reshape(len(values), -1, 16).sum(axis=2)


@pytest.mark.parametrize("factor", [1, 0.6, 0.01, 3])
def test_no_block_is_worse_at_the_same_divisor(factor):
    """NF-48: also at divisors that saturate or vanish, and for blocks that absmax hits exactly."""
    values = np.concatenate(
        [draw("gaussian", (64, 256)), draw("student", (64, 256)) * np.float32(1e-3)]
    )
    values[3] = np.arange(256) % 4
    values[5, ::16], values[5, 1::16] = 1e-6, 0
    divisor = np.float32(nvfp4.choose_divisor(float(np.abs(values).max())) * np.float32(factor))
    plain = block_errors(values, *nvfp4.encode(values, divisor), divisor)
    codes, scales, found = nvfp4_search.encode(values, divisor)
    searched = block_errors(values, codes, scales, divisor)
    assert (searched <= plain).all()
    unit = float(divisor) ** 2
    assert found.errors.sum() / unit == pytest.approx(searched.sum(), rel=1e-3)
    assert found.absmax_errors.sum() / unit == pytest.approx(plain.sum(), rel=1e-3)


def hard_tensors() -> dict[str, np.ndarray]:
    spike = draw("gaussian", (130, 96)) * np.float32(1e-4)
    spike[77, 5] = 50
    return {
        "one value": np.float32([[3.7]]),
        "zeros": np.zeros((4, 40), np.float32),
        "exact": np.float32([[6, 1, 0.5, -3] * 8] * 3),
        "spike": spike,
        "tiny": draw("gaussian", (8, 64)) * np.float32(1e-41),
        "huge": draw("gaussian", (8, 64)) * np.float32(1e37),
        "unlike rows": draw("laplace", (64, 640))
        * np.logspace(-6, 0, 64, dtype=np.float32)[:, None],
    }


@pytest.mark.parametrize("name", list(hard_tensors()))
def test_no_tensor_is_worse(name):
    """NF-49."""
    values = hard_tensors()[name]
    assert squared_error(values, "search") <= squared_error(values, "absmax")


def test_a_divisor_that_only_suits_the_sample_is_dropped(monkeypatch):
    """NF-49: a divisor far too large, proposed by force, loses against absmax."""
    values = draw("gaussian", (256, 64))
    absmax = nvfp4.choose_divisor(float(np.abs(values).max()))
    bad = np.float32(absmax * 64)
    monkeypatch.setattr(nvfp4_search, "choose_divisor", lambda sample, largest: bad)
    assert encode_nvfp4(values, "search")[-4:].view("<f4")[0] == absmax


def scalar_error(block: np.ndarray, word: int) -> float:
    """NF-48 in scalar steps: float32 up to the squares, a float64 tree over them."""
    width = rounding.E4M3_VALUES[max(word, 1)]
    grid = rounding.E2M1_VALUES[:8]
    squares = []
    for magnitude in np.abs(block):
        ratio = np.float32(magnitude * np.float32(1 / np.float64(width)))
        nearest = min(grid, key=lambda value, ratio=ratio: abs(float(value) - float(ratio)))
        distance = np.float32(nearest - ratio)
        squares.append(float(np.float32(distance * distance)))
    for half in (8, 4, 2, 1):
        squares = [squares[i] + squares[i + half] for i in range(half)]
    return squares[0] * float(width) ** 2


def test_scale_words_follow_the_written_rule():
    """NF-48: word by word, for blocks of every size of scale."""
    rng = np.random.default_rng(5)
    blocks = rng.standard_normal((60, 16)) * 2.0 ** rng.integers(-12, 9, (60, 1))
    blocks[:20] = rng.integers(-6, 7, (20, 16)) * 2.0 ** rng.integers(-9, 5, (20, 1))
    blocks = blocks.astype(np.float32)
    found = nvfp4_search.search_scales(blocks)
    for block, word, error in zip(blocks, found.scales, found.errors, strict=True):
        largest = np.abs(block).max()
        base = int(nvfp4.absmax_scales(np.float32([largest]))[0])
        tried = sorted({min(max(base + step, 1), 0x7E) for step in (-1, 1, 4, 5)})
        errors = [scalar_error(block, candidate) for candidate in tried]
        plain = scalar_error(block, base)
        better = min(errors) < plain - 2.0**-16 * float(largest) ** 2
        assert word == (tried[errors.index(min(errors))] if better else base)
        assert error == (min(errors) if better else plain)


def test_another_divisor_is_used_where_it_is_worth_it():
    """NF-49: bounded values, whose blocks all need scales near the top."""
    values = np.random.default_rng(2).uniform(-1, 1, (64, 512)).astype(np.float32)
    absmax = nvfp4.choose_divisor(float(np.abs(values).max()))
    chosen = nvfp4_search.choose_divisor(values, float(np.abs(values).max()))
    assert chosen < absmax
    assert encode_nvfp4(values, "search")[-4:].view("<f4")[0] == chosen
    gaussian = draw("gaussian", (256, 512))
    largest = float(np.abs(gaussian).max())
    assert nvfp4_search.choose_divisor(gaussian, largest) == nvfp4.choose_divisor(largest)


def test_zero_block_keeps_scale_zero():
    """NF-48: no candidate is better than no error."""
    values = np.zeros((1, 32), np.float32)
    values[0, 16] = 1
    _, scales, _ = nvfp4_search.encode(values, np.float32(2688))
    assert scales[0, 0] == 0
