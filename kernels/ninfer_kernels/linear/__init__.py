"""Products with weight matrices of every numeric format."""

from ninfer_kernels.linear.decoding import decode_matrix
from ninfer_kernels.linear.matrix import Matrix, blank_matrix, join_rows, plane_forms
from ninfer_kernels.linear.op import linear, linear_group, scratch_bytes

__all__ = [
    "Matrix",
    "blank_matrix",
    "decode_matrix",
    "join_rows",
    "linear",
    "linear_group",
    "plane_forms",
    "scratch_bytes",
]
