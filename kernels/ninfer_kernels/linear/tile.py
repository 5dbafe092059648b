"""Jit code that turns tiles of stored planes into numbers; shared by every kernel with weights.

A format is an integer constant in jit code (`FORMAT_IDS`). Planes are passed as three pointers:

| format | w_ptr | h_ptr | s_ptr |
|---|---|---|---|
| bf16, fp32 | values | - | - |
| q4, q5, q6, q8 | base | high (q5, q6) | scale |
| nvfp4 | codes | scales | divisor |
| fp8_e4m3fn_row_bf16 | codes | - | scale |

A value is `code * scale`, for nvfp4 `code / divisor`. A code is exact in bfloat16 (integers to 127;
e2m1 * e4m3 has 6 significant bits; e4m3 has 4), so codes go to the matrix unit unrounded, and
the scale is applied to float32 sums. FP8 words are decoded by bit moves: sm_80 has no such type.
"""

# Triton's types are not Python's: a constexpr parameter takes a number, launches take options.
# pyright: reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAssignmentType=false

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ninfer_kernels.linear.matrix import BF16, FP8, FP32, NVFP4, Q4, Q5, Q6, Q8, Matrix

FORMAT_IDS = {BF16: 0, FP32: 1, Q4: 4, Q5: 5, Q6: 6, Q8: 8, NVFP4: 16, FP8: 32}

_FP32 = tl.constexpr(FORMAT_IDS[FP32])
_Q4 = tl.constexpr(FORMAT_IDS[Q4])
_Q5 = tl.constexpr(FORMAT_IDS[Q5])
_Q6 = tl.constexpr(FORMAT_IDS[Q6])
_Q8 = tl.constexpr(FORMAT_IDS[Q8])
_NVFP4 = tl.constexpr(FORMAT_IDS[NVFP4])
_FP8 = tl.constexpr(FORMAT_IDS[FP8])

# Names of the planes behind (w_ptr, h_ptr, s_ptr); an absent plane is stood in for by the first.
_PLANES = {
    BF16: ("values", "values", "values"),
    FP32: ("values", "values", "values"),
    Q4: ("base", "base", "scale"),
    Q5: ("base", "high", "scale"),
    Q6: ("base", "high", "scale"),
    Q8: ("base", "base", "scale"),
    NVFP4: ("codes", "scales", "divisor"),
    FP8: ("codes", "codes", "scale"),
}

# Pointer types of the three planes, for ahead-of-time compilation.
_PLANE_TYPES = {
    BF16: ("*bf16", "*bf16", "*bf16"),
    FP32: ("*fp32", "*fp32", "*fp32"),
    Q4: ("*u8", "*u8", "*fp16"),
    Q5: ("*u8", "*u8", "*fp16"),
    Q6: ("*u8", "*u8", "*fp16"),
    Q8: ("*u8", "*u8", "*fp16"),
    NVFP4: ("*u8", "*u8", "*fp32"),
    FP8: ("*u8", "*u8", "*bf16"),
}

# Values of K that one call of `load_codes` takes, within one group of integer values.
TILE_K = {BF16: 64, FP32: 64, Q4: 64, Q5: 64, Q6: 64, Q8: 32, NVFP4: 64, FP8: 64}


def plane_pointers(matrix: Matrix) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the tensors behind w_ptr, h_ptr and s_ptr."""
    w, h, s = (matrix.planes[name] for name in _PLANES[matrix.format])
    return w, h, s


def plane_signature(format: str) -> dict[str, str]:
    """Return the Triton types of w_ptr, h_ptr and s_ptr."""
    return dict(zip(("w_ptr", "h_ptr", "s_ptr"), _PLANE_TYPES[format], strict=True))


@triton.jit
def widen_e4m3(words):
    """Return float32 values of E4M3FN words, exactly: as a float16 they are 2^-8 too small."""
    wide = words.to(tl.int16)
    bits = ((wide & 0x7F) << 7) | ((wide & 0x80) << 8)
    return bits.to(tl.float16, bitcast=True).to(tl.float32) * 256.0


@triton.jit
def widen_e2m1(words):
    """Return float32 values of E2M1 words 0..15, exactly: as a float16 they are 2^-14 too small."""
    wide = words.to(tl.int16)
    bits = ((wide & 7) << 9) | ((wide & 8) << 12)
    return bits.to(tl.float16, bitcast=True).to(tl.float32) * 16384.0


@triton.jit
def _load_nibbles(w_ptr, h_ptr, o_n, k, K, FORMAT: tl.constexpr, BK: tl.constexpr):
    """Return int32 codes [BN, BK] of q4, q5 or q6 rows `o_n`; `k` is a multiple of BK."""
    BN: tl.constexpr = o_n.shape[0]
    o_b = tl.arange(0, BK // 2)
    p_row = tl.cdiv(K, 128) * 64
    p_w = w_ptr + o_n[:, None] * p_row + (tl.multiple_of(k // 2, BK // 2) + o_b)[None, :]
    b_w = tl.load(p_w).to(tl.int32)
    b_low = b_w & 15
    b_high = b_w >> 4
    if FORMAT == _Q5:
        # Eight values share a byte of high bits: value i has bit i % 8.
        p_h = h_ptr + o_n[:, None] * (p_row // 4) + (k // 8 + o_b // 4)[None, :]
        b_h = tl.load(p_h).to(tl.int32) >> ((o_b % 4) * 2)[None, :]
        b_low |= (b_h & 1) << 4
        b_high |= (b_h & 2) << 3
    if FORMAT == _Q6:
        # Four values share a byte: value i has bits 2 * (i % 4) and the next.
        p_h = h_ptr + o_n[:, None] * (p_row // 2) + (k // 4 + o_b // 2)[None, :]
        b_h = tl.load(p_h).to(tl.int32) >> ((o_b % 2) * 4)[None, :]
        b_low |= (b_h & 3) << 4
        b_high |= (b_h & 12) << 2
    SIGN: tl.constexpr = 1 << (FORMAT - 1)
    b_codes = tl.join(b_low, b_high).reshape(BN, BK)
    return (b_codes ^ SIGN) - SIGN


@triton.jit
def _load_nvfp4(w_ptr, h_ptr, o_n, k, K, BK: tl.constexpr, EVEN: tl.constexpr):
    """Return float32 e2m1 * e4m3 [BN, BK] of rows `o_n`, exact."""
    BN: tl.constexpr = o_n.shape[0]
    o_b = tl.multiple_of(k // 2, BK // 2) + tl.arange(0, BK // 2)
    o_s = tl.multiple_of(k // 16, BK // 16) + tl.arange(0, BK // 16)
    blocks = tl.cdiv(K, 16)
    p_w = w_ptr + o_n[:, None] * (blocks * 8) + o_b[None, :]
    p_h = h_ptr + o_n[:, None] * blocks + o_s[None, :]
    if EVEN:
        b_w = tl.load(p_w)
        b_h = tl.load(p_h)
    else:
        b_w = tl.load(p_w, mask=(o_b < blocks * 8)[None, :], other=0)
        b_h = tl.load(p_h, mask=(o_s < blocks)[None, :], other=0)
    b_values = widen_e2m1(tl.join(b_w & 15, b_w >> 4).reshape(BN, BK // 16, 16))
    return (b_values * widen_e4m3(b_h)[:, :, None]).reshape(BN, BK)


@triton.jit
def load_codes(w_ptr, h_ptr, o_n, k, K, FORMAT: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr):
    """Return float32 codes [BN, BK] of rows `o_n` (int64), values `k` to `k + BK` of K.

    Values beyond K are 0. EVEN says that K is a multiple of BK, for the formats without padding.
    """
    if FORMAT == _NVFP4:
        b_codes = _load_nvfp4(w_ptr, h_ptr, o_n, k, K, BK, EVEN)
    elif FORMAT == _Q4 or FORMAT == _Q5 or FORMAT == _Q6:  # noqa: SIM109
        b_codes = _load_nibbles(w_ptr, h_ptr, o_n, k, K, FORMAT, BK).to(tl.float32)
    elif FORMAT == _Q8:
        o_k = k + tl.arange(0, BK)
        b_words = tl.load(w_ptr + o_n[:, None] * (tl.cdiv(K, 128) * 128) + o_k[None, :])
        b_codes = b_words.to(tl.int8, bitcast=True).to(tl.float32)
    else:
        o_k = k + tl.arange(0, BK)
        p_w = w_ptr + o_n[:, None] * K + o_k[None, :]
        b_words = tl.load(p_w) if EVEN else tl.load(p_w, mask=(o_k < K)[None, :], other=0)
        b_codes = widen_e4m3(b_words) if FORMAT == _FP8 else b_words.to(tl.float32)
    return b_codes


@triton.jit
def load_group_scale(s_ptr, o_n, k, K, FORMAT: tl.constexpr):
    """Return float32 scales [BN] of the group of integer values that holds `k`."""
    GROUP: tl.constexpr = 32 if FORMAT == _Q8 else 64
    return tl.load(s_ptr + o_n * (tl.cdiv(K, 128) * (128 // GROUP)) + k // GROUP).to(tl.float32)


@triton.jit
def scale_rows(b_sums, s_ptr, o_n, FORMAT: tl.constexpr):
    """Apply the factor of a whole row to [BN, M]: nvfp4's divisor, FP8's scale."""
    if FORMAT == _NVFP4:
        b_sums = tl.div_rn(b_sums, tl.load(s_ptr + o_n)[:, None] + tl.zeros_like(b_sums))
    if FORMAT == _FP8:
        b_sums = b_sums * tl.load(s_ptr + o_n).to(tl.float32)[:, None]
    return b_sums


@triton.jit
def decode_tile(
    w_ptr, h_ptr, s_ptr, o_n, k, K, FORMAT: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr
):
    """Return float32 values [BN, BK], bit-equal to `decode_matrix`."""
    b_values = load_codes(w_ptr, h_ptr, o_n, k, K, FORMAT, BK, EVEN)
    if FORMAT >= _Q4 and FORMAT <= _Q8:
        b_values = b_values * load_group_scale(s_ptr, o_n, k, K, FORMAT)[:, None]
    return scale_rows(b_values, s_ptr, o_n, FORMAT)


@triton.jit
def dot_step(
    b_acc, p_x, m_x, w_ptr, h_ptr, s_ptr, o_n, k, K,
    FORMAT: tl.constexpr, BK: tl.constexpr, STEP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Return `b_acc` [BN, BT] plus codes [BN, STEP] times bfloat16 x [STEP, BT], scaled by group.

    `p_x` [BT] points at the rows of x, `m_x` [BT] says which exist.
    """
    for i in tl.static_range(STEP // BK):
        k_i = k + i * BK
        o_k = k_i + tl.arange(0, BK)
        b_codes = load_codes(w_ptr, h_ptr, o_n, k_i, K, FORMAT, BK, EVEN).to(tl.bfloat16)
        m_k = m_x[None, :] if EVEN else m_x[None, :] & (o_k < K)[:, None]
        b_x = tl.load(p_x[None, :] + o_k[:, None], mask=m_k, other=0.0)
        if FORMAT >= _Q4 and FORMAT <= _Q8:
            b_dot = tl.dot(b_codes, b_x)
            b_acc += b_dot * load_group_scale(s_ptr, o_n, k_i, K, FORMAT)[:, None]
        else:
            b_acc = tl.dot(b_codes, b_x, b_acc)
    return b_acc


@triton.jit
def row_step(
    b_acc, p_x, w_ptr, h_ptr, s_ptr, o_n, k, K,
    FORMAT: tl.constexpr, BK: tl.constexpr, STEP: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Return `b_acc` [BN, BK] plus the products of codes and one row of x; sum over BK at the end.

    Plain float32 arithmetic. The matrix unit is no choice for float32 factors: on sm_100 Triton 3.6
    takes them for tf32 even where "ieee" is asked for.
    """
    for i in tl.static_range(STEP // BK):
        k_i = k + i * BK
        o_k = k_i + tl.arange(0, BK)
        b_x = tl.load(p_x + o_k) if EVEN else tl.load(p_x + o_k, mask=o_k < K, other=0.0)
        b_codes = load_codes(w_ptr, h_ptr, o_n, k_i, K, FORMAT, BK, EVEN)
        b_products = b_codes * b_x.to(tl.float32)[None, :]
        if FORMAT >= _Q4 and FORMAT <= _Q8:
            b_products *= load_group_scale(s_ptr, o_n, k_i, K, FORMAT)[:, None]
        b_acc += b_products
    return b_acc
