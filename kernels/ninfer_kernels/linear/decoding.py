"""Values of a matrix in plain torch: the definition every kernel is held to.

Bit-equal to the codecs of the artifact formats for every legal word.
"""

from __future__ import annotations

import torch

from ninfer_kernels.linear.matrix import FP8, GROUPS, NVFP4, NVFP4_BLOCK, Q4, Q5, Q6, Q8, Matrix

_SIGN = {Q4: 8, Q5: 16, Q6: 32}


def decode_matrix(matrix: Matrix, begin: int = 0, end: int | None = None) -> torch.Tensor:
    """Return float32 [n, K], the values of rows `begin` to `end`.

    | format | value |
    |---|---|
    | bf16, fp32 | the word |
    | q4, q5, q6, q8 | code * scale of its group, rounded once to float32 |
    | nvfp4 | e2m1(code) * e4m3(scale) / divisor; the product is exact, the division rounds once |
    | fp8_e4m3fn_row_bf16 | e4m3(code) * scale of the row, exact |

    Words that the formats forbid (NaN codes, negative scales) are not looked for.
    """
    stop = matrix.rows if end is None else end
    part = matrix if (begin, stop) == (0, matrix.rows) else matrix.cut_rows(begin, stop)
    if part.format in GROUPS:
        return _decode_integers(part)
    if part.format == NVFP4:
        return _decode_nvfp4(part)
    if part.format == FP8:
        return widen_e4m3(part.planes["codes"]) * part.planes["scale"].float()[:, None]
    return part.planes["values"].float()


def widen_e4m3(words: torch.Tensor) -> torch.Tensor:
    """Return float32 values of E4M3FN words uint8, exactly."""
    return words.view(torch.float8_e4m3fn).float()


def widen_e2m1(words: torch.Tensor) -> torch.Tensor:
    """Return float32 values of E2M1 words uint8 0..15, exactly, signed zero included.

    Exponent and fraction, moved to the same place of a float16, are the value times 2^-14.
    """
    wide = words.to(torch.int16)
    return (((wide & 7) << 9) | ((wide & 8) << 12)).view(torch.float16).float() * 16384.0


def split_nibbles(words: torch.Tensor) -> torch.Tensor:
    """Return uint8 [N, 2 * B] of bytes [N, B], the low nibble first."""
    return torch.stack((words & 15, words >> 4), dim=-1).flatten(-2)


def _decode_integers(matrix: Matrix) -> torch.Tensor:
    scale = matrix.planes["scale"].float()
    codes = _integer_codes(matrix).view(matrix.rows, scale.shape[1], GROUPS[matrix.format])
    return (codes.float() * scale[:, :, None]).view(matrix.rows, -1)[:, : matrix.columns]


def _integer_codes(matrix: Matrix) -> torch.Tensor:
    base = matrix.planes["base"]
    if matrix.format == Q8:
        return base.view(torch.int8)
    words = split_nibbles(base)
    if matrix.format == Q5:
        words = words | (_split_bits(matrix.planes["high"], 1) << 4)
    elif matrix.format == Q6:
        words = words | (_split_bits(matrix.planes["high"], 2) << 4)
    sign = _SIGN[matrix.format]
    return (words ^ sign).to(torch.int8) - sign


def _split_bits(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the fields of `bits` bits of bytes [N, B], the lowest first."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=words.device)
    return ((words[..., None] >> shifts) & (2**bits - 1)).flatten(-2)


def _decode_nvfp4(matrix: Matrix) -> torch.Tensor:
    values = widen_e2m1(split_nibbles(matrix.planes["codes"]))
    scales = widen_e4m3(matrix.planes["scales"])
    products = values.view(matrix.rows, -1, NVFP4_BLOCK) * scales[:, :, None]
    return products.view(matrix.rows, -1)[:, : matrix.columns] / matrix.planes["divisor"][:, None]
