"""A weight matrix in any numeric format: typed planes that kernels read as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from ninfer_kernels.launch import ceil_div

BF16 = "bf16"
FP32 = "fp32"
Q4 = "q4_g64_fp16"
Q5 = "q5_g64_fp16"
Q6 = "q6_g64_fp16"
Q8 = "q8_g32_fp16"
NVFP4 = "nvfp4"
FP8 = "fp8_e4m3fn_row_bf16"
FORMATS = (BF16, FP32, Q4, Q5, Q6, Q8, NVFP4, FP8)

# Values of a row that share one scale, for the integer formats.
GROUPS = {Q4: 64, Q5: 64, Q6: 64, Q8: 32}
NVFP4_BLOCK = 16

# Integer rows are padded to a multiple of this many values, with code 0.
INTEGER_PADDING = 128

_BASE_BYTES = 32
_HIGH_BYTES = {Q5: 8, Q6: 16}

PlaneForm = tuple[tuple[int, ...], torch.dtype]


def plane_forms(format: str, rows: int, columns: int) -> dict[str, PlaneForm]:
    """Return shape and dtype of every plane of a matrix [rows, columns].

    | format | planes |
    |---|---|
    | bf16, fp32 | values [N, K] |
    | q4, q5, q6, q8 | base uint8 [N, G * 32]; scale float16 [N, G] |
    | q5, q6 also | high uint8 [N, G * 8] or [N, G * 16] |
    | nvfp4 | codes uint8 [N, B * 8]; scales uint8 [N, B]; divisor float32 [N]; B = ceil(K / 16) |
    | fp8_e4m3fn_row_bf16 | codes uint8 [N, K]; scale bfloat16 [N] |

    G counts the groups of K padded to 128. Codes lie as in the artifact's layouts, except that
    nvfp4's scales are row-major and its divisor is repeated for every row, so that rows of
    matrices with different divisors can be joined. Raises ValueError for an unknown format.
    """
    if format in (BF16, FP32):
        dtype = torch.bfloat16 if format == BF16 else torch.float32
        return {"values": ((rows, columns), dtype)}
    if format in GROUPS:
        return _integer_forms(format, rows, columns)
    if format == NVFP4:
        blocks = ceil_div(columns, NVFP4_BLOCK)
        return {
            "codes": ((rows, blocks * (NVFP4_BLOCK // 2)), torch.uint8),
            "scales": ((rows, blocks), torch.uint8),
            "divisor": ((rows,), torch.float32),
        }
    if format == FP8:
        return {
            "codes": ((rows, columns), torch.uint8),
            "scale": ((rows,), torch.bfloat16),
        }
    raise ValueError(f"unknown matrix format: got {format}, want one of {', '.join(FORMATS)}")


def _integer_forms(format: str, rows: int, columns: int) -> dict[str, PlaneForm]:
    groups = ceil_div(columns, INTEGER_PADDING) * (INTEGER_PADDING // GROUPS[format])
    forms: dict[str, PlaneForm] = {"base": ((rows, groups * _BASE_BYTES), torch.uint8)}
    if format in _HIGH_BYTES:
        forms["high"] = ((rows, groups * _HIGH_BYTES[format]), torch.uint8)
    forms["scale"] = ((rows, groups), torch.float16)
    return forms


@dataclass(frozen=True)
class Matrix:
    """A matrix [rows, columns] (out features, in features) in `format`.

    `planes` has exactly the tensors of `plane_forms`, contiguous and on one device; every plane's
    first dimension is the matrix row, so a range of rows is a view. Padding beyond K holds code
    0. Raises ValueError for a plane that is missing, foreign or of another form.
    """

    format: str
    rows: int
    columns: int
    planes: Mapping[str, torch.Tensor]

    def __post_init__(self) -> None:
        forms = plane_forms(self.format, self.rows, self.columns)
        if set(forms) != set(self.planes):
            raise ValueError(
                f"planes of {self.format}: got {list(self.planes)}, want {list(forms)}"
            )
        for name, (shape, dtype) in forms.items():
            plane = self.planes[name]
            if tuple(plane.shape) != shape or plane.dtype != dtype:
                got = f"{list(plane.shape)} {plane.dtype}"
                raise ValueError(
                    f"plane {name} of {self.format}: got {got}, want {list(shape)} {dtype}"
                )
            if not plane.is_contiguous():
                raise ValueError(f"plane {name} of {self.format} is not contiguous")
        devices = {plane.device for plane in self.planes.values()}
        if len(devices) > 1:
            raise ValueError(f"planes of {self.format} lie on several devices: {devices}")

    @property
    def device(self) -> torch.device:
        return next(iter(self.planes.values())).device

    @property
    def bytes(self) -> int:
        """Bytes of all planes."""
        return sum(plane.numel() * plane.element_size() for plane in self.planes.values())

    def cut_rows(self, begin: int, end: int) -> Matrix:
        """Return rows `begin` to `end` as a view; raises ValueError for an empty or wrong range."""
        if not 0 <= begin < end <= self.rows:
            raise ValueError(f"rows of a matrix: got {begin}..{end}, want within 0..{self.rows}")
        planes = {name: plane[begin:end] for name, plane in self.planes.items()}
        return Matrix(self.format, end - begin, self.columns, planes)

    def gather_rows(self, ids: torch.Tensor) -> Matrix:
        """Return the rows `ids` (int32 or int64 [T]) as a copy; ids must be in range."""
        planes = {name: plane.index_select(0, ids) for name, plane in self.planes.items()}
        return Matrix(self.format, ids.numel(), self.columns, planes)

    def to(self, device: torch.device | str) -> Matrix:
        """Return the matrix on `device`, itself when it is there already."""
        planes = {name: plane.to(device) for name, plane in self.planes.items()}
        return Matrix(self.format, self.rows, self.columns, planes)


def blank_matrix(
    format: str, rows: int, columns: int, device: torch.device | str = "cpu"
) -> Matrix:
    """Return a matrix of zero bytes to be filled; errors as `plane_forms`."""
    forms = plane_forms(format, rows, columns)
    planes = {
        name: torch.zeros(shape, dtype=dtype, device=device)
        for name, (shape, dtype) in forms.items()
    }
    return Matrix(format, rows, columns, planes)


def join_rows(matrices: Sequence[Matrix]) -> Matrix:
    """Return the rows of `matrices`, one after the other, as one matrix (a copy).

    Raises ValueError when formats or columns differ.
    """
    kinds = {(matrix.format, matrix.columns) for matrix in matrices}
    if len(kinds) != 1:
        raise ValueError(f"joined matrices: got {sorted(kinds)}, want one format and column count")
    first = matrices[0]
    planes = {
        name: torch.cat([matrix.planes[name] for matrix in matrices]) for name in first.planes
    }
    return Matrix(first.format, sum(matrix.rows for matrix in matrices), first.columns, planes)
