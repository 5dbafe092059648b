"""The layouts one word at a time, from the formulas of `specs/layouts.md`: an oracle."""

from __future__ import annotations


def up(x: int, a: int) -> int:
    return (x + a - 1) // a * a


def row_split_bytes(codes: list[list[int]], scales: list[list[int]], bits: int) -> bytes:
    n, k, group = len(codes), len(codes[0]), 32 if bits == 8 else 64
    g = up(k, 128) // group
    high_bytes = {4: 0, 5: 8, 6: 16, 8: 0}[bits]
    high_at = up(n * g * 32, 256)
    scale_at = high_at + up(n * g * high_bytes, 256)
    out = bytearray(scale_at + n * g * 2)
    for row in range(n):
        for column, code in enumerate(codes[row]):
            at, i, u = row * g + column // group, column % group, code % 2**bits
            if bits == 8:
                out[at * 32 + i] = u
                continue
            out[at * 32 + i // 2] |= (u & 15) << (4 * (i % 2))
            if bits == 5:
                out[high_at + at * 8 + i // 8] |= (u >> 4 & 1) << (i % 8)
            if bits == 6:
                out[high_at + at * 16 + i // 4] |= (u >> 4 & 3) << (2 * (i % 4))
        for number, word in enumerate(scales[row]):
            at = scale_at + (row * g + number) * 2
            out[at : at + 2] = word.to_bytes(2, "little")
    return bytes(out)


def block_scale_bytes(codes: list[list[int]], scales: list[list[int]], divisors: bytes) -> bytes:
    n, k = len(codes), len(codes[0])
    row_bytes, tiles = up(k, 16) // 2, up(k, 64) // 64
    scale_at = up(n * row_bytes, 256)
    out = bytearray(scale_at + up(n, 128) // 128 * tiles * 512)
    for row in range(n):
        for column, code in enumerate(codes[row]):
            out[row * row_bytes + column // 2] |= code << (4 * (column % 2))
        for g, word in enumerate(scales[row]):
            tile = (row // 128) * tiles + g // 4
            out[scale_at + tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + g % 4] = word
    return bytes(out) + divisors


def row_scale_bytes(codes: list[list[int]], scales: list[int]) -> bytes:
    body = b"".join(bytes(row) for row in codes)
    body += bytes(up(len(body), 256) - len(body))
    return body + b"".join(word.to_bytes(2, "little") for word in scales)
