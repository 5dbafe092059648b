"""contiguous_le_v1: little-endian words in C order, no padding (rules LY-10, LY-11)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.layouts.planes import Planes


def pack(words: NDArray[Any]) -> Planes:
    """Return the plane of little-endian `words` of any rank; its rows are those of axis 0."""
    rows = words.shape[0] if words.ndim else 1
    return {"values": np.ascontiguousarray(words).reshape(rows, -1).view(np.uint8)}


def unpack(planes: Planes, word_type: np.dtype[Any]) -> NDArray[Any]:
    """Return the words [rows, words per row], a view of the plane."""
    return planes["values"].view(word_type)
