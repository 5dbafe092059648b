"""Tensors made of codes and scales that a checkpoint already holds (rule NF-8)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import nvfp4
from ninfer_formats.codecs.faults import reject_where
from ninfer_formats.codecs.grouped_int import CODES
from ninfer_formats.codecs.legality import reject_illegal
from ninfer_formats.errors import UsageError
from ninfer_formats.layouts import block_scale, row_scale, row_split
from ninfer_formats.layouts.geometry import plan_tensor
from ninfer_formats.layouts.planes import U8, Planes, blank_tensor
from ninfer_formats.layouts.rows import RowView


def import_words(
    format: str,
    shape: tuple[int, int],
    codes: NDArray[Any],
    scales: NDArray[Any],
    divisors: NDArray[np.float32] | float | None = None,
) -> U8:
    """Return the encoded bytes of a matrix [N, K] from given words, none of them changed.

    | format | codes | scales | divisors |
    |---|---|---|---|
    | integers | int8 [N, K] | uint16 [N, ceil(K / group)], float16 words | none |
    | FP8 | uint8 [N, K] | uint16 [N], bfloat16 words, multipliers | none |
    | nvfp4 | uint8 [N, ceil(K / 2)], smaller k in the low nibble | uint8 [N, ceil(K / 16)] | \
one, or float32 [D] for D equal stacks of rows |

    A divisor is what values are divided by, not a multiplier. Raises UsageError for a type or
    shape that does not fit, and NumericError for words the format forbids.
    """
    if format not in (nf.NVFP4, nf.FP8, *CODES):
        raise UsageError("format has no codes and scales to import", got=format)
    layout = nf.FORMATS[format].layout
    stacks = np.atleast_1d(np.asarray(1 if divisors is None else divisors, np.float32))
    flat, planes = blank_tensor(plan_tensor(format, layout, shape, len(stacks)))
    if format == nf.NVFP4:
        if divisors is None:
            raise UsageError("nvfp4 needs its divisor")
        _import_nvfp4(planes, shape, codes, scales, stacks)
    elif format == nf.FP8:
        _check(codes, np.uint8, shape, "codes")
        _check(scales, np.uint16, shape[:1], "scales")
        _fill(planes, row_scale.pack(codes, scales))
    else:
        _import_grouped(planes, format, shape, codes, scales)
    reject_illegal(RowView(format, layout, shape, planes, dict.fromkeys(planes, True)))
    return flat


def _import_nvfp4(
    planes: Planes, shape: tuple[int, int], codes: U8, scales: U8, divisors: NDArray[np.float32]
) -> None:
    n, k = shape
    for divisor in divisors:
        nvfp4.check_divisor(divisor)
    _check(codes, np.uint8, (n, -(-k // 2)), "codes")
    _check(scales, np.uint8, (n, -(-k // block_scale.BLOCK)), "scales")
    planes["codes"][:, : codes.shape[1]] = codes
    planes["scales"][:] = block_scale.swizzle(scales)
    planes["divisor"][:] = block_scale.pack_divisors(divisors)


def _import_grouped(
    planes: Planes,
    format: str,
    shape: tuple[int, int],
    codes: NDArray[np.int8],
    scales: NDArray[np.uint16],
) -> None:
    _check(codes, np.int8, shape, "codes")
    _check(scales, np.uint16, (shape[0], -(-shape[1] // nf.FORMATS[format].group)), "scales")
    known = CODES[format]
    outside = (codes < known.low) | (codes > known.high)
    reject_where(outside, f"code outside {known.low}..{known.high}", "column", 0, codes)
    _fill(planes, row_split.pack(codes, scales, format))


def _fill(planes: Planes, packed: Planes) -> None:
    for name, rows in packed.items():
        planes[name][:] = rows


def _check(words: NDArray[Any], kind: type, shape: tuple[int, ...], name: str) -> None:
    if words.dtype != kind or words.shape != shape:
        raise UsageError(
            f"{name} do not fit",
            got=f"{words.dtype} {list(words.shape)}",
            want=f"{np.dtype(kind)} {list(shape)}",
        )
