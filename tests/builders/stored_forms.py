"""Tensors as files of a checkpoint hold them: random legal words in every form, and their values.

What words decode to is computed in float64 from the definition of the form, and rounded once.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
FP8_FORMS = ("ct_row", "ct_tensor", "ct_block", "hf_block", "modelopt_fp8")
FORMS = ("ct_nvfp4", "modelopt_nvfp4", *FP8_FORMS)


class Stored(NamedTuple):
    """A tensor as a file holds it."""

    dtype: str
    words: np.ndarray


def store_plain(random, name, shape, dtype="BF16"):
    """Return random words of `dtype`, float32 for A_log and the GDN norm as official files have."""
    values = random.normal(0, 0.5, shape).astype("<f4")
    if dtype == "F32" or name.endswith(("A_log", "linear_attn.norm.weight")):
        return Stored("F32", values), values
    if dtype == "F16":
        halves = values.astype("<f2")
        return Stored("F16", halves), halves.astype("<f4")
    words = (values.view("<u4") >> 16).astype("<u2")
    return Stored("BF16", words), bf16_values(words)


def bf16_values(words):
    return (words.astype("<u4") << 16).view("<f4")


def e4m3_values(words):
    """Return float64 values of E4M3FN words from the definition of the format."""
    words = words.astype(np.int64)
    sign = np.where(words & 0x80, -1.0, 1.0)
    exponent, fraction = (words >> 3) & 15, words & 7
    normal = np.ldexp(1 + fraction / 8, exponent - 7)
    return sign * np.where(exponent == 0, fraction * 2.0**-9, normal)


def _nvfp4_words(random, n, k):
    packed = random.integers(0, 256, (n, k // 2), np.uint8)
    scales = random.integers(0x28, 0x60, (n, k // 16), np.uint8)
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(n, k)
    products = E2M1[codes] * np.repeat(e4m3_values(scales), 16, axis=1)
    return Stored("U8", packed), Stored("F8_E4M3", scales), products


def _scalar(value, shape=(1,)):
    return Stored("F32", np.full(shape, value, "<f4"))


def _ct_nvfp4(random, n, k):
    packed, scales, products = _nvfp4_words(random, n, k)
    divisor = np.float32(random.uniform(500, 3000))
    parts = {
        "weight_packed": packed, "weight_scale": scales,
        "weight_global_scale": _scalar(divisor),
        "input_global_scale": _scalar(random.uniform(100, 900)),
    }  # fmt: skip
    return parts, (products / np.float64(divisor)).astype(np.float32)


def _modelopt_nvfp4(random, n, k):
    packed, scales, products = _nvfp4_words(random, n, k)
    multiplier = np.float32(random.uniform(1 / 3000, 1 / 500))
    parts = {
        "weight": packed, "weight_scale": scales, "weight_scale_2": _scalar(multiplier, ()),
        "input_scale": _scalar(random.uniform(1 / 900, 1 / 100), ()),
    }  # fmt: skip
    return parts, (products * np.float64(multiplier)).astype(np.float32)


def _fp8_codes(random, n, k):
    codes = random.integers(0, 255, (n, k), np.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0
    return Stored("F8_E4M3", codes), e4m3_values(codes)


def _bf16_scales(random, shape):
    words = (random.uniform(0.001, 0.01, shape).astype("<f4").view("<u4") >> 16).astype("<u2")
    return Stored("BF16", words), bf16_values(words).astype(np.float64)


def _ct_row(random, n, k):
    codes, values = _fp8_codes(random, n, k)
    scales, multipliers = _bf16_scales(random, (n, 1))
    return {"weight": codes, "weight_scale": scales}, (values * multipliers).astype(np.float32)


def _ct_tensor(random, n, k):
    codes, values = _fp8_codes(random, n, k)
    scales, multiplier = _bf16_scales(random, (1,))
    parts = {"weight": codes, "weight_scale": scales, "input_scale": _scalar(0.25)}
    return parts, (values * multiplier).astype(np.float32)


def _modelopt_fp8(random, n, k):
    codes, values = _fp8_codes(random, n, k)
    multiplier = np.float32(random.uniform(0.001, 0.01))
    parts = {
        "weight": codes, "weight_scale": _scalar(multiplier, ()), "input_scale": _scalar(0.25, ())
    }  # fmt: skip
    return parts, (values * np.float64(multiplier)).astype(np.float32)


def _blocks(random, n, k, name, dtype):
    codes, values = _fp8_codes(random, n, k)
    scales, multipliers = _bf16_scales(random, (-(-n // 128), -(-k // 128)))
    if dtype == "F32":
        scales = Stored("F32", multipliers.astype("<f4"))
    spread = np.repeat(np.repeat(multipliers, 128, axis=0), 128, axis=1)[:n, :k]
    return {"weight": codes, name: scales}, (values * spread).astype(np.float32)


def _ct_weight_only(random, n, k):
    parts, values = _ct_nvfp4(random, n, k)
    del parts["input_global_scale"]
    return parts, values


STORES = {
    "ct_nvfp4": _ct_nvfp4,
    "ct_nvfp4_weight_only": _ct_weight_only,
    "modelopt_nvfp4": _modelopt_nvfp4,
    "ct_row": _ct_row,
    "ct_tensor": _ct_tensor,
    "modelopt_fp8": _modelopt_fp8,
    "ct_block": lambda random, n, k: _blocks(random, n, k, "weight_scale", "F32"),
    "hf_block": lambda random, n, k: _blocks(random, n, k, "weight_scale_inv", "BF16"),
}


def encode_safetensors(tensors: dict[str, Stored]) -> bytes:
    """Return a safetensors file of the tensors in order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, words) in tensors.items():
        shape, end = list(words.shape), at + words.nbytes
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    data = b"".join(np.ascontiguousarray(t.words).tobytes() for t in tensors.values())
    return encode_header(header) + data


def encode_header(header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
