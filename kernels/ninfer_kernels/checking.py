"""Comparing an operation with its exact result so that nothing unwritten and no NaN can pass.

What every `cases.py` offers to tests and to scripts/gpu_check.py:

- `CASES`: a tuple of frozen records with `name: str` and `small: bool` (fits the interpreter);
- `make_inputs(case, device, seed)`: random inputs;
- `worst_error(case, device, seed, backend) -> float`: runs the operation on poisoned outputs and
  returns the largest error as a share of what specs/numerics.md allows; at most 1.0 passes.
"""

from __future__ import annotations

import torch

# Unit roundoff: half the distance between 1 and the next number.
ROUNDOFF = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}

_POISON_INTEGER = {torch.uint8: 0xA5, torch.int8: -91, torch.int32: -0x5A5A5A5B}


def poisoned(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """Return a tensor that no kernel may leave as it is: NaN, or an odd number for integers."""
    value = float("nan") if dtype.is_floating_point else _POISON_INTEGER.get(dtype, 0x5A)
    return torch.full(shape, value, dtype=dtype, device=device)


def error_share(got: torch.Tensor, want: torch.Tensor, bound: torch.Tensor | float) -> float:
    """Return the largest |got - want| / bound over all elements, in float64.

    `bound` is the error the rules of specs/numerics.md allow, one number or a tensor that
    broadcasts to `want`; where it is 0 the values must be equal. At most 1.0 passes; a NaN or an
    infinity on either side gives infinity, as does a shape that differs.
    """
    if got.shape != want.shape:
        return float("inf")
    difference = (got.double() - want.double()).abs()
    limit = torch.as_tensor(bound, dtype=torch.float64, device=difference.device)
    share = torch.where(difference == 0, 0.0, difference / limit)
    share = torch.where(torch.isfinite(difference) & ~torch.isnan(share), share, float("inf"))
    return float(share.max()) if share.numel() else 0.0


def sum_bound(magnitudes: torch.Tensor, terms: int, term_error: float = 0.0) -> torch.Tensor:
    """Return the allowed error of a float32 sum of `terms` products (rule N-2).

    `magnitudes` is the float64 sum of the absolute values of the products; `term_error` is the
    relative error of one product beyond float32 rounding, such as that of a rounded weight.
    """
    return magnitudes.double() * ((terms + 2) * 2.0**-24 + term_error)


def rounded_bound(want: torch.Tensor, dtype: torch.dtype, before: torch.Tensor) -> torch.Tensor:
    """Return `before` plus one rounding of the result to `dtype` (rule N-3)."""
    unit = ROUNDOFF[dtype]
    smallest = torch.finfo(dtype).smallest_normal * unit
    return before * (1 + unit) + want.double().abs() * unit + smallest
