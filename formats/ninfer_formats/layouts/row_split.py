"""row_split_k128_v1: integer codes cut into a base, a high and a scale plane (rules LY-20..26).

No arithmetic on values: codes are two's complement words, scales are float16 words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.layouts.geometry import align_up
from ninfer_formats.layouts.planes import U8, Planes

K_ALIGNMENT = 128


def pack(codes: NDArray[np.int8], scales: NDArray[np.uint16], format: str) -> Planes:
    """Return plane rows of codes int8 [N, K] and scale words uint16 [N, ceil(K / group)].

    K is padded to a multiple of 128 with code 0, and wholly padded groups get scale 0.
    """
    padded = align_up(codes.shape[1], K_ALIGNMENT)
    words = _pad_columns(codes, padded).view(np.uint8)
    groups = padded // nf.FORMATS[format].group
    planes = {"base": words if format == nf.Q8 else _pack_nibbles(words)}
    if format == nf.Q5:
        planes["high"] = np.packbits(words >> 4 & 1, axis=1, bitorder="little")
    elif format == nf.Q6:
        planes["high"] = _pack_pairs(words)
    planes["scale"] = _pad_columns(scales.astype("<u2", copy=False), groups).view(np.uint8)
    return planes


def unpack(planes: Planes, format: str, k: int) -> tuple[NDArray[np.int8], NDArray[np.uint16]]:
    """Return codes int8 [N, K] and scale words uint16 [N, ceil(K / group)]; padding is dropped."""
    groups = -(-k // nf.FORMATS[format].group)
    return unpack_padded(planes, format)[:, :k], scale_words(planes)[:, :groups]


def unpack_padded(planes: Planes, format: str) -> NDArray[np.int8]:
    """Return codes int8 [N, K padded to the planes' width]."""
    base = planes["base"]
    if format == nf.Q8:
        return base.view(np.int8)
    words = _unpack_nibbles(base)
    if format == nf.Q5:
        words |= np.unpackbits(planes["high"], axis=1, bitorder="little") << 4
    elif format == nf.Q6:
        words |= _unpack_pairs(planes["high"])
    sign = 1 << (nf.FORMATS[format].bits - 1)
    return (words ^ np.uint8(sign)).view(np.int8) - np.int8(sign)


def scale_words(planes: Planes) -> NDArray[np.uint16]:
    """Return the scale plane as little-endian words [N, groups], a view."""
    return planes["scale"].view("<u2")


def _pad_columns(words: NDArray[Any], width: int) -> NDArray[Any]:
    missing = width - words.shape[1]
    return np.pad(words, ((0, 0), (0, missing))) if missing else np.ascontiguousarray(words)


def _pack_nibbles(words: U8) -> U8:
    pairs = words.view("<u2") & 0x0F0F
    return (pairs | pairs >> 4).astype(np.uint8)


def _unpack_nibbles(base: U8) -> U8:
    pairs = base.astype("<u2")
    return ((pairs | pairs << 4) & 0x0F0F).view(np.uint8)


def _pack_pairs(words: U8) -> U8:
    # Bits 4 and 5 of four neighbouring lanes go into one byte, the first lane lowest.
    quads = words.view("<u4") >> 4 & 0x03030303
    return (quads | quads >> 6 | quads >> 12 | quads >> 18).astype(np.uint8)


def _unpack_pairs(high: U8) -> U8:
    quads = high.astype("<u4")
    spread = (quads | quads << 6 | quads << 12 | quads << 18) & 0x03030303
    return (spread << 4).view(np.uint8)
