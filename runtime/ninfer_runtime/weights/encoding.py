"""Rows of a bf16 matrix encoded where they lie, by the default methods (rule MEM-17).

Every byte equals that of `ninfer_formats.tensors.encode_tensor`. Each step is one eager operation
of torch, which rounds once; divisions have a tensor below the line, because CUDA would turn a
number there into a multiplication.
"""

from __future__ import annotations

import numpy as np
import torch

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import grouped_int, nvfp4
from ninfer_formats.layouts.geometry import align_up
from ninfer_formats.layouts.row_split import K_ALIGNMENT
from ninfer_kernels.linear import Matrix

_E4M3_MAX = 448.0
# Borders between neighbouring E2M1 magnitudes, and whether a value on one goes up, to an even code.
_BORDERS = ((0.25, False), (0.75, True), (1.25, False), (1.75, True),
            (2.5, False), (3.5, True), (5.0, False))  # fmt: skip


def encode_rows(rows: torch.Tensor, format: str, divisor: float) -> Matrix:
    """Return rows bf16 [N, K], which are finite, in `format`; `divisor` is NVFP4's."""
    if format == nf.FP8:
        planes = _encode_fp8(rows)
    elif format == nf.NVFP4:
        planes = _encode_nvfp4(rows.float(), divisor)
    else:
        planes = _encode_integers(rows.float(), format)
    return Matrix(format, rows.shape[0], rows.shape[1], planes)


def find_largest(words: np.ndarray) -> float:
    """Return the largest magnitude of bf16 words; NaN and infinity when they are there."""
    # Magnitudes order like their words, NaN above infinity.
    largest = max(int((part & 0x7FFF).max()) for part in np.array_split(words, _parts(words)))
    return float(np.array([largest << 16], np.uint32).view(np.float32)[0])


def _parts(words: np.ndarray) -> int:
    return max(1, words.nbytes >> 22)


def _encode_fp8(rows: torch.Tensor) -> dict[str, torch.Tensor]:
    values = rows.float()
    limit = values.new_tensor(_E4M3_MAX, dtype=torch.float64)
    largest = values.abs().amax(1).double()
    scale = (largest / limit).float().to(torch.bfloat16)
    inverse = (torch.ones_like(limit) / scale.double()).float()
    zero = torch.isinf(inverse)
    scaled = values * inverse.masked_fill(zero, 0)[:, None]
    codes = _round_e4m3(scaled).masked_fill_(zero[:, None], 0)
    return {"codes": codes, "scale": scale.masked_fill(zero, 0)}


def _encode_nvfp4(values: torch.Tensor, divisor: float) -> dict[str, torch.Tensor]:
    scaled = _pad(values * values.new_tensor(divisor), nvfp4.BLOCK).unflatten(1, (-1, nvfp4.BLOCK))
    largest = scaled.abs().amax(2)
    scales = _round_e4m3(largest / largest.new_tensor(6.0))
    scales.masked_fill_((scales == 0) & (largest > 0), nvfp4.RESCUED_SCALE)
    widths = scales.view(torch.float8_e4m3fn).float().masked_fill_(scales == 0, 1)
    ratios = scaled.abs() / widths[..., None]
    codes = torch.signbit(scaled).to(torch.uint8) << 3
    for border, up in _BORDERS:
        codes += ratios >= border if up else ratios > border
    planes = {"codes": _pack(codes.flatten(1), 2, 4), "scales": scales}
    return {**planes, "divisor": values.new_full((len(values),), divisor)}


def _encode_integers(values: torch.Tensor, format: str) -> dict[str, torch.Tensor]:
    code, group = grouped_int.CODES[format], nf.FORMATS[format].group
    groups = _pad(values, K_ALIGNMENT).unflatten(1, (-1, group))
    largest = groups.abs().amax(2)
    high = largest.new_tensor(code.high, dtype=torch.float64)
    scales = (largest.double() / high).float().half()
    words = scales.view(torch.int16)
    words.masked_fill_((scales == 0) & (largest > 0), grouped_int.RESCUED_SCALE)
    inverse = (torch.ones_like(high) / scales.double()).float().masked_fill_(words == 0, 0)
    normal = (groups * inverse[..., None]).round_().clamp_(code.low, code.high)
    codes = normal.flatten(1).to(torch.int8).view(torch.uint8)
    planes = {"scale": scales}
    if format == nf.Q8:
        return {"base": codes, **planes}
    if format != nf.Q4:
        bits = nf.FORMATS[format].bits - 4
        planes["high"] = _pack(codes >> 4, 8 // bits, bits)
    return {"base": _pack(codes, 2, 4), **planes}


def _pack(codes: torch.Tensor, lanes: int, bits: int) -> torch.Tensor:
    """Return the low `bits` of every `lanes` neighbours in one byte, the first lane lowest."""
    split = (codes & ((1 << bits) - 1)).unflatten(1, (-1, lanes))
    packed = split[..., 0].clone()
    for lane in range(1, lanes):
        packed |= split[..., lane] << (bits * lane)
    return packed


def _pad(values: torch.Tensor, step: int) -> torch.Tensor:
    missing = align_up(values.shape[1], step) - values.shape[1]
    return torch.nn.functional.pad(values, (0, missing)) if missing else values


def _round_e4m3(values: torch.Tensor) -> torch.Tensor:
    # Beyond 448 the cast would give NaN.
    return values.clamp(-_E4M3_MAX, _E4M3_MAX).to(torch.float8_e4m3fn).view(torch.uint8)
