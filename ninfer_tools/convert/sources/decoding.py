"""Values of stored rows, as the producer of the checkpoint defines them (S-50 to S-58)."""

from __future__ import annotations

import numpy as np

from ninfer_formats.codecs.rounding import E2M1_VALUES, E4M3_VALUES, F32, U8
from ninfer_formats.layouts.block_scale import unpack_codes
from ninfer_tools.convert.sources.quantization import FP8_BLOCK_SIZE, NVFP4_BLOCK_SIZE


def decode_nvfp4(codes: U8, scales: U8, scalar: np.float32, multiplies: bool) -> F32:
    """Return float32 [n, K] of packed codes [n, K/2] and scale words [n, K/16].

    The product of code and block scale is exact; multiplying with or dividing by the global
    scale is the one rounding.
    """
    values = E2M1_VALUES[unpack_codes(codes)].reshape(len(codes), -1, NVFP4_BLOCK_SIZE)
    values *= E4M3_VALUES[scales][:, :, None]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        np.multiply(values, scalar, out=values) if multiplies else np.divide(
            values, scalar, out=values
        )
    return values.reshape(len(codes), -1)


def decode_fp8(codes: U8, scales: F32) -> F32:
    """Return float32 [n, K] of codes [n, K] and multipliers that broadcast to [n, K]."""
    values = E4M3_VALUES[codes]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.multiply(values, scales, out=values)


def spread_blocks(scales: F32, columns: int) -> F32:
    """Return float32 [n, columns] of the block scales [n, ceil(columns / 128)] of rows."""
    return np.repeat(scales, FP8_BLOCK_SIZE, axis=1)[:, :columns]
