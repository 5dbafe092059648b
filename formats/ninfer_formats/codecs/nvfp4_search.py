"""The `search` encoder of nvfp4: scales and divisor that minimise the squared error.

Each block tries the E4M3FN words around its absmax scale; the tensor tries a few divisors at or
below the absmax one on a sample of its blocks. Rules NF-48 and NF-49 fix every operation and the
order of every sum, so that other implementations reach the same words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.codecs import nvfp4, rounding
from ninfer_formats.codecs.rounding import F32, U8

F64 = NDArray[np.float64]

# Steps of the scale word around absmax, lowest first: of equal errors the lower word wins. Eight
# words are one octave: one down clips the largest value a little, four or five up put it near
# code 4 instead of 6. All steps from -2 to 6 would gain one percent of the error more.
STEPS = (-1, 1, 4, 5)

# A smaller divisor leaves the scale of the largest block room to grow past absmax.
DIVISOR_FACTORS = tuple(2.0 ** (-step / 8) for step in range(9))
SAMPLE_BLOCKS = 8192
# Another divisor than absmax must promise a gain that is worth checking on the whole tensor.
WORTHWHILE = 0.99

# The float32 roundings between a value and its decoded code move a block's error by less than
# this share of its largest square; a candidate wins only by more, which keeps "never worse than
# absmax" exact.
NOISE = 2.0**-16

# Rows whose errors are summed before they meet those of other rows.
TILE_ROWS = 128

# Blocks per tile: the float32 buffers of 16 x 4096 stay in a second-level cache.
_TILE = 4096

WIDTHS = rounding.E4M3_VALUES[: nvfp4.MAX_SCALE + 1].copy()
WIDTHS[0] = WIDTHS[nvfp4.RESCUED_SCALE]
WIDTHS.flags.writeable = False
# 1 / scale as float32 and scale squared as float64 (exact), by scale word.
INVERSES = rounding.divide(1.0, WIDTHS)
INVERSES.flags.writeable = False
SQUARES = np.square(WIDTHS, dtype=np.float64)
SQUARES.flags.writeable = False


@dataclass(frozen=True)
class SearchedScales:
    """Scale words uint8 [B]; squared errors float64 [B] of |value * divisor| with and without
    the search."""

    scales: U8
    errors: F64
    absmax_errors: F64


def encode(values: F32, divisor: np.float32) -> tuple[U8, U8, SearchedScales]:
    """Return codes uint8 [N, K], scale words [N, ceil(K / 16)] and what the search reached.

    No block has a larger squared error than with `nvfp4.encode` at the same divisor.
    """
    scaled = nvfp4.scale_blocks(values, divisor)
    found = search_scales(scaled.reshape(-1, nvfp4.BLOCK))
    scales = found.scales.reshape(scaled.shape[:2])
    return nvfp4.encode_blocks(scaled, scales)[:, : values.shape[1]], scales, found


def choose_divisor(sample: F32, largest: float) -> np.float32:
    """Return the divisor with the least error on `sample`, float32 [N, K] rows of the tensor.

    `largest` is the largest magnitude of the whole tensor. The absmax divisor stays unless
    another one's error is below WORTHWHILE times its own.
    """
    candidates = list_divisors(largest)
    return select_divisor(candidates, [_sample_error(sample, divisor) for divisor in candidates])


def list_divisors(largest: float) -> list[np.float32]:
    """Return the candidate divisors, the absmax one first."""
    absmax = nvfp4.choose_divisor(largest)
    return [np.float32(absmax * np.float32(factor)) for factor in DIVISOR_FACTORS]


def select_divisor(candidates: list[np.float32], errors: list[float]) -> np.float32:
    """Return the candidate of least error, the first of equals; see `choose_divisor`."""
    best = int(np.argmin(errors))
    return candidates[best if errors[best] < WORTHWHILE * errors[0] else 0]


def search_scales(blocks: F32) -> SearchedScales:
    """Return the best scale of each block of values times divisor, float32 [B, 16]."""
    return _search(blocks, STEPS)


def absmax_errors(values: F32, divisor: np.float32) -> F64:
    """Return the squared error of each block under the absmax encoder, as `SearchedScales`."""
    scaled = nvfp4.scale_blocks(values, divisor).reshape(-1, nvfp4.BLOCK)
    return _search(scaled, steps=()).absmax_errors


def sample_step(n: int, k: int) -> int:
    """Return the distance of the sampled rows of [N, K]; row 0 is the first of them."""
    wanted = max(1, SAMPLE_BLOCKS * nvfp4.BLOCK // k)
    return max(1, n // wanted)


def sum_errors(errors: list[float], divisor: np.float32) -> float:
    """Return the sum of `errors` in squared units of the values, rounded once in any order."""
    return math.fsum(errors) / float(divisor) ** 2


def sum_tiles(errors: F64, groups: int) -> list[float]:
    """Return the sum of each 128 rows' block errors [N * groups]."""
    step = TILE_ROWS * groups
    return [math.fsum(errors[at : at + step].tolist()) for at in range(0, len(errors), step)]


def is_no_worse(
    reached: list[float], divisor: np.float32, plain: list[float], absmax: np.float32
) -> bool:
    """Return whether the tensor's error, by `sum_tiles`, does not exceed that of absmax."""
    return sum_errors(reached, divisor) <= sum_errors(plain, absmax)


def _sample_error(sample: F32, divisor: np.float32) -> float:
    scaled = nvfp4.scale_blocks(sample, divisor).reshape(-1, nvfp4.BLOCK)
    return sum_errors(search_scales(scaled).errors.tolist(), divisor)


def _search(blocks: F32, steps: tuple[int, ...]) -> SearchedScales:
    scales = np.empty(len(blocks), np.uint8)
    errors, absmax = np.empty((2, len(blocks)), np.float64)
    for begin in range(0, len(blocks), _TILE):
        tile = slice(begin, begin + _TILE)
        scales[tile], errors[tile], absmax[tile] = _search_tile(blocks[tile], steps)
    return SearchedScales(scales, errors, absmax)


def _search_tile(tile: F32, steps: tuple[int, ...]) -> tuple[U8, F64, F64]:
    # Blocks along the fast axis: scales broadcast and sums run over whole vectors.
    magnitudes = np.abs(tile.T, order="C")
    buffers = np.empty((3, *magnitudes.shape), np.float32)
    largest = magnitudes.max(axis=0)
    base = nvfp4.absmax_scales(largest)
    base_errors = _block_errors(magnitudes, base, buffers)
    best, best_errors = base.copy(), base_errors.copy()
    bar = base_errors - NOISE * np.square(largest, dtype=np.float64)
    for step in steps:
        words = np.clip(base.astype(np.int16) + step, 1, nvfp4.MAX_SCALE).astype(np.uint8)
        errors = _block_errors(magnitudes, words, buffers)
        better = errors < bar
        for kept, new in ((best, words), (best_errors, errors), (bar, errors)):
            np.copyto(kept, new, where=better)
    return best, best_errors, base_errors


def _block_errors(magnitudes: F32, words: U8, buffers: F32) -> F64:
    # sum (q(y / s) * s - y)^2 = s^2 * sum (q(t) - t)^2 with t = y / s
    ratios, snapped, scratch = buffers
    np.multiply(magnitudes, INVERSES[words], out=ratios)
    rounding.snap_to_e2m1(ratios, out=snapped, scratch=scratch)
    np.subtract(snapped, ratios, out=ratios)
    np.multiply(ratios, ratios, out=ratios)
    return _sum_halves(ratios) * SQUARES[words]


def _sum_halves(squares: F32) -> F64:
    # A fixed tree: i and i + 8, then i and i + 4, i + 2, i + 1.
    sums = squares.astype(np.float64)
    while len(sums) > 1:
        half = len(sums) // 2
        sums = np.add(sums[:half], sums[half:], out=sums[:half])
    return sums[0]
