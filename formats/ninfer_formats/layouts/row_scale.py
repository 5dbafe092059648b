"""row_scale_v1: one code byte per value, then one bfloat16 scale word per row (rule LY-40)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.layouts.planes import U8, Planes


def pack(codes: U8, scales: NDArray[np.uint16]) -> Planes:
    """Return plane rows of codes uint8 [N, K] and scale words uint16 [N]."""
    return {"codes": codes, "scale": scales.astype("<u2", copy=False)[:, None].view(np.uint8)}


def unpack(planes: Planes) -> tuple[U8, NDArray[np.uint16]]:
    """Return codes uint8 [N, K] and scale words uint16 [N], views of the planes."""
    return planes["codes"], planes["scale"].view("<u2")[:, 0]
