"""block_scale_k16_m128x4_v1: E2M1 nibbles, swizzled E4M3FN scales, divisors (rules LY-30..34).

A scale tile holds 128 rows x 4 blocks in 512 bytes; inside it row r and block b lie at
(r % 32) * 16 + (r // 32) * 4 + b. Tiles run along K first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.layouts.planes import U8

BLOCK = 16
TILE_ROWS = 128
TILE_BLOCKS = 4


def pack_codes(codes: U8) -> U8:
    """Return nibbles [N, ceil(K / 16) * 8] of codes uint8 [N, K] (0..15), the smaller k in the low
    one; K is padded to a multiple of 16 with code 0."""
    padding = -codes.shape[1] % BLOCK
    if padding:
        codes = np.pad(codes, ((0, 0), (0, padding)))
    pairs = np.ascontiguousarray(codes).view("<u2")
    return (pairs | pairs >> 4).astype(np.uint8)


def unpack_codes(rows: U8) -> U8:
    """Return codes 0..15 as uint8 [N, 2 * bytes], padding included."""
    pairs = rows.astype("<u2")
    return ((pairs | pairs << 4) & 0x0F0F).view(np.uint8)


def swizzle(scales: U8) -> U8:
    """Return tile rows uint8 [ceil(N / 128), ceil(G / 4) * 512] of scale words [N, G], padded to
    whole tiles with zeros."""
    n, groups = scales.shape
    tile_rows, tiles = -(-n // TILE_ROWS), -(-groups // TILE_BLOCKS)
    padded = np.zeros((tile_rows * TILE_ROWS, tiles * TILE_BLOCKS), np.uint8)
    padded[:n, :groups] = scales
    # [tile row, r // 32, r % 32, tile, block] -> [tile row, tile, r % 32, r // 32, block]
    return (
        padded.reshape(tile_rows, 4, 32, tiles, TILE_BLOCKS)
        .transpose(0, 3, 2, 1, 4)
        .reshape(tile_rows, -1)
    )


def unswizzle_padded(tile_rows: U8) -> U8:
    """Return scale words [128 * tile rows, 4 * tiles], padding included."""
    rows = len(tile_rows)
    words = tile_rows.reshape(rows, -1, 32, 4, TILE_BLOCKS).transpose(0, 3, 2, 1, 4)
    return words.reshape(rows * TILE_ROWS, -1)


def gather_scales(tile_rows: U8, begin: int, end: int, groups: int) -> U8:
    """Return scale words [end - begin, groups] of the rows `begin` to `end`, a copy."""
    first, last = begin // TILE_ROWS, -(-end // TILE_ROWS)
    words = unswizzle_padded(tile_rows[first:last])
    return words[begin - first * TILE_ROWS : end - first * TILE_ROWS, :groups]


def scatter_scales(tile_rows: U8, begin: int, scales: U8) -> None:
    """Write scale words [n, groups] into the rows from `begin` on of writable tile rows."""
    end = begin + len(scales)
    first, last = begin // TILE_ROWS, -(-end // TILE_ROWS)
    words = unswizzle_padded(tile_rows[first:last])
    words[begin - first * TILE_ROWS : end - first * TILE_ROWS, : scales.shape[1]] = scales
    tile_rows[first:last] = swizzle(words)


def pack_divisors(divisors: NDArray[np.float32]) -> U8:
    """Return the divisor plane [D, 4] of float32 [D]."""
    return np.ascontiguousarray(divisors.astype("<f4", copy=False))[:, None].view(np.uint8)


def unpack_divisors(plane: U8) -> NDArray[np.float32]:
    """Return divisors float32 [D] of their plane [D, 4]."""
    return np.ascontiguousarray(plane).view("<f4")[:, 0].astype(np.float32, copy=False)
