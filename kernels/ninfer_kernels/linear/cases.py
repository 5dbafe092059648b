"""Shapes `linear` is tested and measured with, odd ones first."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.checking import (
    ROUNDOFF,
    error_share,
    poisoned,
    rounded_bound,
    sum_bound,
)
from ninfer_kernels.launch import REFERENCE
from ninfer_kernels.linear.decoding import decode_matrix
from ninfer_kernels.linear.matrix import (
    BF16,
    FORMATS,
    FP8,
    FP32,
    GROUPS,
    NVFP4,
    Q4,
    Q5,
    Q6,
    Q8,
    Matrix,
    blank_matrix,
)
from ninfer_kernels.linear.op import linear, scratch_bytes
from ninfer_kernels.linear.plan import MAX_SKINNY

# Rows whose float64 weights are held at a time.
_EXACT_ROWS = 16384


@dataclass(frozen=True)
class LinearCase:
    """x [tokens, columns] times a matrix [rows, columns] in `format`; `small` fits interpreters."""

    format: str
    tokens: int
    rows: int
    columns: int
    dtype: torch.dtype = torch.bfloat16
    out_dtype: torch.dtype | None = None
    bias: bool = False
    small: bool = False

    @property
    def name(self) -> str:
        return f"{self.format} {self.tokens}x{self.rows}x{self.columns} {self.dtype}"


def _small_cases() -> tuple[LinearCase, ...]:
    odd = [LinearCase(format, 3, 67, 330, small=True, bias=True) for format in FORMATS]
    full = [LinearCase(format, 2, 64, 256, torch.float32, small=True) for format in FORMATS]
    split = [LinearCase(format, 1, 5, 1160, small=True, bias=True) for format in (Q5, NVFP4, BF16)]
    wide = [LinearCase(format, 17, 33, 130, small=True) for format in FORMATS]
    mixed = [LinearCase(Q6, 2, 40, 128, small=True, out_dtype=torch.float32)]
    return tuple(odd + full + split + wide + mixed)


def _model_cases() -> tuple[LinearCase, ...]:
    body = ((34816, 5120), (5120, 17408), (16384, 5120), (14336, 5120), (5120, 6144), (96, 5120))
    skinny = [LinearCase(f, 5, n, k) for n, k in body for f in (NVFP4, Q4, Q5, Q8, FP8, BF16)]
    rows = [LinearCase(NVFP4, t, 34816, 5120) for t in (1, 2, 8, 16)]
    head = [LinearCase(Q6, 4, 248320, 5120, out_dtype=torch.float32)]
    sparse = [LinearCase(BF16, 8, 256, 2048, out_dtype=torch.float32)]
    wide = [LinearCase(f, 1024, 16384, 5120) for f in (NVFP4, Q4, Q5, Q6, Q8, FP8, BF16, FP32)]
    return tuple(skinny + rows + head + sparse + wide)


CASES: tuple[LinearCase, ...] = _small_cases() + _model_cases()


def random_matrix(format: str, rows: int, columns: int, generator: torch.Generator) -> Matrix:
    """Return a matrix of random legal words of about unit variance over K; padding is zero.

    `generator` says on which device it lies.
    """
    device = generator.device
    matrix = blank_matrix(format, rows, columns, device)
    planes = matrix.planes
    spread = columns**-0.5

    def words(shape: torch.Size, low: int, high: int) -> torch.Tensor:
        return torch.randint(
            low, high, shape, dtype=torch.uint8, device=device, generator=generator
        )

    def scales(shape: torch.Size, size: float) -> torch.Tensor:
        return (torch.rand(shape, device=device, generator=generator) + 0.5) * (size * spread)

    if format in GROUPS:
        for name in planes.keys() - {"scale"}:
            planes[name].copy_(words(planes[name].shape, 0, 256))
        largest = {Q4: 8, Q5: 16, Q6: 32, Q8: 127}[format]
        planes["scale"].copy_(scales(planes["scale"].shape, 1 / largest))
        if format == Q8:
            planes["base"].masked_fill_(planes["base"] == 0x80, 0)
        _clear_padding(matrix)
    elif format == NVFP4:
        planes["codes"].copy_(words(planes["codes"].shape, 0, 256))
        planes["scales"].copy_(words(planes["scales"].shape, 0, 0x60))
        planes["divisor"].copy_(1 / scales(planes["divisor"].shape, 1 / 16))
        if columns % 16:
            planes["codes"][:, columns // 2 + columns % 2 :] = 0
            if columns % 2:
                planes["codes"][:, columns // 2] &= 15
    elif format == FP8:
        planes["codes"].copy_(words(planes["codes"].shape, 0, 256))
        planes["codes"].masked_fill_((planes["codes"] & 0x7F) == 0x7F, 0)
        planes["scale"].copy_(scales(planes["scale"].shape, 1 / 100))
    else:
        values = torch.randn(rows, columns, device=device, generator=generator) * spread
        planes["values"].copy_(values)
    return matrix


def _clear_padding(matrix: Matrix) -> None:
    """Set the codes past K to 0 in an integer matrix; K is made of whole bytes of every plane
    but for the last ones."""
    columns, group = matrix.columns, GROUPS[matrix.format]
    for name, bits in (("base", 8 if matrix.format == Q8 else 4), ("high", _high_bits(matrix))):
        if bits and name in matrix.planes:
            plane = matrix.planes[name]
            whole, rest = divmod(columns * bits, 8)
            if rest:
                plane[:, whole] &= (1 << rest) - 1
            plane[:, whole + (rest > 0) :] = 0
    matrix.planes["scale"][:, -(-columns // group) :] = 0


def _high_bits(matrix: Matrix) -> int:
    return {Q5: 1, Q6: 2}.get(matrix.format, 0)


@dataclass(frozen=True)
class LinearInputs:
    x: torch.Tensor
    matrix: Matrix
    bias: torch.Tensor | None


def make_inputs(case: LinearCase, device: torch.device | str, seed: int) -> LinearInputs:
    """Return random inputs of a case."""
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.randn(case.tokens, case.columns, device=device, generator=generator)
    matrix = random_matrix(case.format, case.rows, case.columns, generator)
    bias = torch.randn(case.rows, device=device, generator=generator) if case.bias else None
    return LinearInputs(x.to(case.dtype), matrix, bias)


def exact(inputs: LinearInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the float64 result and the sums of the magnitudes of its terms."""
    x, matrix, bias = inputs.x.double(), inputs.matrix, inputs.bias
    results, sizes = [], []
    for begin in range(0, matrix.rows, _EXACT_ROWS):
        end = min(matrix.rows, begin + _EXACT_ROWS)
        weight = decode_matrix(matrix, begin, end).double()
        added = torch.zeros(end - begin, device=x.device) if bias is None else bias[begin:end]
        results.append(x @ weight.T + added.double())
        sizes.append(x.abs() @ weight.abs().T + added.double().abs())
    return torch.cat(results, 1), torch.cat(sizes, 1)


def allowed_error(
    case: LinearCase, result: torch.Tensor, sizes: torch.Tensor, backend: str
) -> torch.Tensor:
    """Return what rules N-8 to N-10 allow a backend against the exact result."""
    decoded = backend != REFERENCE and case.tokens > MAX_SKINNY and case.format not in (BF16, FP32)
    weight_error = ROUNDOFF[case.dtype] if decoded else 0.0
    before = sum_bound(sizes, case.columns, 3 * 2.0**-24 + weight_error)
    return rounded_bound(result, case.out_dtype or case.dtype, before)


def worst_error(case: LinearCase, device: torch.device | str, seed: int, backend: str) -> float:
    """Return the largest error of a backend as a share of what is allowed; outputs are poisoned."""
    inputs = make_inputs(case, device, seed)
    out = poisoned((case.tokens, case.rows), case.out_dtype or case.dtype, device)
    needed = scratch_bytes(case.tokens, inputs.matrix, case.dtype)
    scratch = poisoned((needed,), torch.uint8, device).fill_(0xFF)
    linear(inputs.x, inputs.matrix, inputs.bias, out=out, scratch=scratch, backend=backend)
    result, sizes = exact(inputs)
    return error_share(out, result, allowed_error(case, result, sizes, backend))
