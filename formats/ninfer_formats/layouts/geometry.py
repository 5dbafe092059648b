"""Plane offsets and byte counts of every layout: pure arithmetic on shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import ArtifactError

TENSOR_ALIGNMENT = 256
PLANE_ALIGNMENT = 256
MAX_RANK = 16
# Offsets and sizes are signed 64-bit in every engine that reads these files.
MAX_OFFSET = 2**63 - 1

# Bytes of one 64- or 32-value group in the base and the high plane of row_split_k128_v1.
_BASE_BYTES = 32
_HIGH_BYTES = {nf.Q4: 0, nf.Q5: 8, nf.Q6: 16, nf.Q8: 0}


def align_up(value: int, alignment: int) -> int:
    """Return the smallest multiple of `alignment` that is not below `value`."""
    return -(-value // alignment) * alignment


@dataclass(frozen=True)
class Plane:
    """One plane of an encoded tensor: `rows` runs of `row_bytes` bytes starting at `offset`.

    `rows` is the unit in which the plane can be cut: matrix rows, except for the NVFP4 scale
    plane, whose unit is a tile of 128 rows.
    """

    name: str
    offset: int
    rows: int
    row_bytes: int

    @property
    def end(self) -> int:
        return self.offset + self.rows * self.row_bytes


@dataclass(frozen=True)
class TensorGeometry:
    """The planes of one encoded tensor and its total byte count."""

    planes: tuple[Plane, ...]
    bytes: int


# A model repeats a few dozen shapes over thousands of tensors.
@lru_cache(maxsize=1024)
def plan_tensor(
    format: str, layout: str, shape: tuple[int, ...], divisors: int = 1
) -> TensorGeometry:
    """Return the planes of a tensor.

    Raises ArtifactError for an unknown format or layout, a pair that does not belong together, a
    shape the layout cannot hold, or a size past 2**63-1.
    """
    known = nf.FORMATS.get(format)
    if known is None:
        raise ArtifactError("unknown numeric format", got=format, want=", ".join(nf.FORMATS))
    if layout not in nf.LAYOUTS:
        raise ArtifactError("unknown layout", got=layout, want=", ".join(nf.LAYOUTS))
    if layout != known.layout:
        raise ArtifactError(f"layout does not hold {format}", got=layout, want=known.layout)
    if len(shape) > MAX_RANK or any(n < 1 for n in shape):
        raise ArtifactError("shape is not legal", got=list(shape), want="up to 16 sizes >= 1")
    geometry = _PLANNERS[layout](format, shape, divisors)
    if geometry.bytes > MAX_OFFSET:
        raise ArtifactError("tensor is too large", got=geometry.bytes, want=f"<= {MAX_OFFSET}")
    return geometry


def encoded_size(format: str, layout: str, shape: tuple[int, ...], divisors: int = 1) -> int:
    """Return the byte count of an encoded tensor; errors as `plan_tensor`."""
    return plan_tensor(format, layout, shape, divisors).bytes


def _plan_contiguous(format: str, shape: tuple[int, ...], divisors: int) -> TensorGeometry:
    rows = shape[0] if shape else 1
    row_bytes = math.prod(shape[1:]) * nf.FORMATS[format].bits // 8
    return TensorGeometry((Plane("values", 0, rows, row_bytes),), rows * row_bytes)


def _matrix(layout: str, shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) != 2:
        raise ArtifactError(f"{layout} holds matrices only", got=list(shape), want="[N, K]")
    return shape[0], shape[1]


def _plan_row_split(format: str, shape: tuple[int, ...], divisors: int) -> TensorGeometry:
    n, k = _matrix(nf.ROW_SPLIT, shape)
    groups = align_up(k, 128) // nf.FORMATS[format].group
    high_bytes = _HIGH_BYTES[format]
    base = Plane("base", 0, n, groups * _BASE_BYTES)
    high = Plane("high", align_up(base.end, PLANE_ALIGNMENT), n, groups * high_bytes)
    scale = Plane("scale", align_up(high.end, PLANE_ALIGNMENT), n, groups * 2)
    planes = (base, high, scale) if high_bytes else (base, scale)
    return TensorGeometry(planes, scale.end)


def _plan_block_scale(format: str, shape: tuple[int, ...], divisors: int) -> TensorGeometry:
    n, k = _matrix(nf.BLOCK_SCALE, shape)
    if divisors < 1 or n % divisors:
        raise ArtifactError("divisors must split the rows evenly", got=divisors, want=f"| {n}")
    codes = Plane("codes", 0, n, align_up(k, 16) // 2)
    # A 512-byte tile holds 128 rows x 4 blocks of 16; edges are padded to whole tiles.
    tiles = Plane("scales", align_up(codes.end, PLANE_ALIGNMENT), -(-n // 128), -(-k // 64) * 512)
    divisor = Plane("divisor", tiles.end, divisors, 4)
    return TensorGeometry((codes, tiles, divisor), divisor.end)


def _plan_row_scale(format: str, shape: tuple[int, ...], divisors: int) -> TensorGeometry:
    n, k = _matrix(nf.ROW_SCALE, shape)
    codes = Plane("codes", 0, n, k)
    scale = Plane("scale", align_up(codes.end, PLANE_ALIGNMENT), n, 2)
    return TensorGeometry((codes, scale), scale.end)


_PLANNERS = {
    nf.CONTIGUOUS: _plan_contiguous,
    nf.ROW_SPLIT: _plan_row_split,
    nf.BLOCK_SCALE: _plan_block_scale,
    nf.ROW_SCALE: _plan_row_scale,
}
