"""Codes of the cache inside a Triton kernel; the arithmetic of kv_codec/reference.py."""

# Triton rewrites jit bodies and their calls; a type checker cannot follow.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportAssignmentType=false

from __future__ import annotations

import triton
import triton.language as tl

# Kinds inside kernels; 0 stores the values themselves.
KIND_IDS = {"fp32": 0, "bf16": 0, "fp8": 1, "int8": 2}


@triton.jit
def encode_tile(b_x, KIND: tl.constexpr):
    """Return (codes [R, D], fp32 row scales [R]) of fp32 rows b_x; masked elements must be 0.

    The clamps between a product and the following sum also keep the compiler from fusing the
    two, which would round differently from the reference.
    """
    MOST: tl.constexpr = 448.0 if KIND == 1 else 127.0
    b_size = tl.abs(b_x)
    b_largest = tl.max(b_size, 1)
    # A comparison with NaN is false; the maximum above drops NaN.
    b_bad = tl.max(tl.where(b_size <= 3.4028234663852886e38, 0, 1), 1) > 0
    b_scale = tl.math.div_rn(b_largest, tl.full(b_largest.shape, MOST, tl.float32))
    b_scale = tl.minimum(tl.maximum(b_scale, 5.960464477539063e-08), 65504.0)
    b_scale = b_scale.to(tl.float16).to(tl.float32)
    b_inverse = tl.math.div_rn(tl.full(b_scale.shape, 1.0, tl.float32), b_scale)
    b_scaled = tl.where(b_bad[:, None], 0.0, b_x * b_inverse[:, None])
    b_scaled = tl.minimum(tl.maximum(b_scaled, -MOST), MOST)
    b_scale = tl.where(b_bad, float("nan"), b_scale)
    if KIND == 1:
        b_codes = round_to_e4m3(b_scaled)
    else:
        # 1.5 * 2^23 has unit steps around it: the addition rounds to nearest even.
        b_codes = ((b_scaled + 12582912.0) - 12582912.0).to(tl.int8)
    return b_codes, b_scale


@triton.jit
def round_to_e4m3(b_x):
    """Return E4M3FN words (uint8) of fp32 values within +-448, ties to the even word."""
    b_size = tl.abs(b_x)
    b_bits = b_size.to(tl.int32, bitcast=True)
    b_normal = ((b_bits + 0x7FFFF + ((b_bits >> 20) & 1)) >> 20) - 960
    # Steps around 2^14 are 2^-9, those of the subnormal words.
    b_shifted = (b_size + 16384.0).to(tl.int32, bitcast=True)
    b_word = tl.where(b_size < 0.015625, b_shifted - 0x46800000, b_normal)
    b_sign = (b_x.to(tl.int32, bitcast=True) >> 24) & 0x80
    return (b_word | b_sign).to(tl.uint8)


@triton.jit
def decode_tile(b_codes, KIND: tl.constexpr, TYPE: tl.constexpr):
    """Return codes as values of TYPE, exactly, short of the row scale.

    E4M3FN words moved to the fields of fp16 read as 2^-8 times their value, subnormals included.
    """
    if KIND == 1:
        b_wide = b_codes.to(tl.int16)
        b_fields = ((b_wide & 0x80) << 8) | ((b_wide & 0x7F) << 7)
        b_values = (b_fields.to(tl.float16, bitcast=True).to(tl.float32) * 256.0).to(TYPE)
    elif KIND == 2:
        b_values = b_codes.to(tl.float32).to(TYPE)
    else:
        b_values = b_codes.to(TYPE)
    return b_values
