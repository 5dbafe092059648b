"""The `search` encoder of nvfp4: scales and divisor that minimise the squared error.

Each block tries the E4M3FN words around its absmax scale; the tensor tries a few divisors at or
below the absmax one on a sample of its blocks. Rules NF-48 and NF-49.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ninfer_formats.codecs import nvfp4, rounding
from ninfer_formats.codecs.rounding import F32, U8

# Steps of the scale word around absmax. Eight words are one octave: two down clips the largest
# value a little, six up puts it near code 4 instead of 6. A wider range gains nothing.
STEPS = (1, -1, 2, -2, 3, 4, 5, 6)

# A smaller divisor leaves the scale of the largest block room to grow past absmax.
DIVISOR_FACTORS = tuple(2.0 ** (-step / 8) for step in range(9))
SAMPLE_BLOCKS = 8192

# Blocks per tile: the float32 buffers of 16 x 4096 stay in a second-level cache.
_TILE = 4096

# A candidate wins only by more than the float32 noise of the two sums, as a share of the block's
# energy; that keeps "never worse than absmax" exact.
_NOISE = np.float32(4e-6)


@dataclass(frozen=True)
class SearchedScales:
    """Scale words [B], and the summed squared errors (in value units) with and without search."""

    scales: U8
    error: float
    absmax_error: float


def encode(values: F32, divisor: np.float32) -> tuple[U8, U8, SearchedScales]:
    """Return codes uint8 [N, K], scale words [N, ceil(K / 16)] and what the search reached.

    No block has a larger squared error than with `nvfp4.encode` at the same divisor.
    """
    scaled = nvfp4.scale_blocks(values, divisor)
    found = search_scales(scaled.reshape(-1, nvfp4.BLOCK), divisor)
    scales = found.scales.reshape(scaled.shape[:2])
    return nvfp4.encode_blocks(scaled, scales)[:, : values.shape[1]], scales, found


def choose_divisor(sample: F32, largest: float) -> np.float32:
    """Return the divisor with the least error on `sample`, float32 [N, K] rows of the tensor.

    `largest` is the largest magnitude of the whole tensor. Equal errors keep the absmax divisor.
    """
    absmax = nvfp4.choose_divisor(largest)
    candidates = [np.float32(absmax * np.float32(factor)) for factor in DIVISOR_FACTORS]
    errors = [_sample_error(sample, divisor) for divisor in candidates]
    return candidates[int(np.argmin(errors))]


def absmax_error(values: F32, divisor: np.float32) -> float:
    """Return the summed squared error of the absmax encoder on float32 [N, K]."""
    scaled = nvfp4.scale_blocks(values, divisor).reshape(-1, nvfp4.BLOCK)
    return _search(scaled, divisor, steps=()).absmax_error


def search_scales(blocks: F32, divisor: np.float32) -> SearchedScales:
    """Return the best scale of each block of values times divisor, float32 [B, 16]."""
    return _search(blocks, divisor, STEPS)


def _sample_error(sample: F32, divisor: np.float32) -> float:
    scaled = nvfp4.scale_blocks(sample, divisor)
    return search_scales(scaled.reshape(-1, nvfp4.BLOCK), divisor).error


def _search(blocks: F32, divisor: np.float32, steps: tuple[int, ...]) -> SearchedScales:
    scales = np.empty(len(blocks), np.uint8)
    reached = absmax = 0.0
    for begin in range(0, len(blocks), _TILE):
        tile = blocks[begin : begin + _TILE]
        scales[begin : begin + _TILE], best, base = _search_tile(tile, steps)
        reached += float(best.sum(dtype=np.float64))
        absmax += float(base.sum(dtype=np.float64))
    unit = float(divisor) ** 2
    return SearchedScales(scales, reached / unit, absmax / unit)


def _search_tile(tile: F32, steps: tuple[int, ...]) -> tuple[U8, F32, F32]:
    # Blocks along the fast axis: scales broadcast and sums run over whole vectors.
    magnitudes = np.abs(tile.T, order="C")
    buffers = np.empty((3, *magnitudes.shape), np.float32)
    base = nvfp4.absmax_scales(magnitudes.max(axis=0))
    base_errors = _block_errors(magnitudes, base, buffers)
    best, best_errors = base.copy(), base_errors.copy()
    bar = base_errors - _NOISE * _sum_squares(magnitudes, buffers[0])
    for step in steps:
        words = np.clip(base.astype(np.int16) + step, 1, nvfp4.MAX_SCALE).astype(np.uint8)
        errors = _block_errors(magnitudes, words, buffers)
        better = errors < bar
        np.copyto(best, words, where=better)
        np.copyto(best_errors, errors, where=better)
        np.copyto(bar, errors, where=better)
    return best, best_errors, base_errors


def _block_errors(magnitudes: F32, words: U8, buffers: F32) -> F32:
    # sum (q(y / s) * s - y)^2 = s^2 * sum (q(t) - t)^2 with t = y / s
    widths = rounding.E4M3_VALUES[np.maximum(words, nvfp4.RESCUED_SCALE)]
    ratios, snapped, scratch = buffers
    np.multiply(magnitudes, np.reciprocal(widths), out=ratios)
    rounding.snap_to_e2m1(ratios, out=snapped, scratch=scratch)
    np.subtract(snapped, ratios, out=ratios)
    errors = _sum_squares(ratios, scratch)
    return np.multiply(errors, np.square(widths), out=errors)


def _sum_squares(values: F32, scratch: F32) -> F32:
    np.multiply(values, values, out=scratch)
    return np.add.reduce(scratch, axis=0)
