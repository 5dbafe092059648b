"""Shapes `embedding` is tested and measured with, odd ones first."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.checking import error_share, poisoned, rounded_bound
from ninfer_kernels.embedding.op import embedding
from ninfer_kernels.linear.cases import random_matrix
from ninfer_kernels.linear.decoding import decode_matrix
from ninfer_kernels.linear.matrix import BF16, FORMATS, FP8, Q6, Q8, Matrix


@dataclass(frozen=True)
class EmbeddingCase:
    """`tokens` rows of a table [rows, columns] in `format`."""

    format: str
    tokens: int
    rows: int
    columns: int
    dtype: torch.dtype = torch.bfloat16
    ids: torch.dtype = torch.int32
    small: bool = False

    @property
    def name(self) -> str:
        return f"{self.format} {self.tokens} of {self.rows}x{self.columns}"


CASES: tuple[EmbeddingCase, ...] = (
    *(EmbeddingCase(format, 3, 7, 330, small=True) for format in FORMATS),
    *(EmbeddingCase(f, 2, 5, 128, torch.float32, torch.int64, small=True) for f in FORMATS),
    *(EmbeddingCase(format, 8, 248320, 5120) for format in (Q6, Q8, FP8, BF16)),
    EmbeddingCase(Q6, 4096, 248320, 2048),
)


def make_inputs(
    case: EmbeddingCase, device: torch.device | str, seed: int
) -> tuple[torch.Tensor, Matrix]:
    """Return ids [tokens], first and last row among them, and the table."""
    generator = torch.Generator(device).manual_seed(seed)
    matrix = random_matrix(case.format, case.rows, case.columns, generator)
    ids = torch.randint(0, case.rows, (case.tokens,), device=device, generator=generator)
    ids[0], ids[-1] = case.rows - 1, 0
    return ids.to(case.ids), matrix


def worst_error(case: EmbeddingCase, device: torch.device | str, seed: int, backend: str) -> float:
    """Return the largest error of a backend as a share of what is allowed; outputs are poisoned."""
    ids, matrix = make_inputs(case, device, seed)
    out = poisoned((case.tokens, case.columns), case.dtype, device)
    embedding(ids, matrix, out=out, backend=backend)
    want = decode_matrix(matrix.gather_rows(ids))
    bound = (
        0.0 if case.dtype == torch.float32 else rounded_bound(want, case.dtype, want.double() * 0)
    )
    return error_share(out, want, bound)
