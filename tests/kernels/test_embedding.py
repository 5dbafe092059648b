"""Laws of `embedding` (rule N-12)."""

from __future__ import annotations

import pytest
import torch

from ninfer_kernels.checking import poisoned
from ninfer_kernels.embedding import embedding
from ninfer_kernels.embedding.cases import CASES, worst_error
from ninfer_kernels.launch import REFERENCE, TRITON
from ninfer_kernels.linear.cases import random_matrix
from ninfer_kernels.linear.decoding import decode_matrix
from ninfer_kernels.linear.matrix import FP32, NVFP4, Q6

SMALL = [case for case in CASES if case.small]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: f"{case.name} {case.dtype}")
@pytest.mark.parametrize("backend", [REFERENCE, TRITON])
def test_row_is_the_decoded_row_rounded_once(case, backend, device):
    """N-12."""
    assert worst_error(case, device, 1, backend) <= 1


@pytest.mark.parametrize("backend", [REFERENCE, TRITON])
def test_equal_ids_give_equal_rows_in_the_order_of_ids(backend, device):
    matrix = random_matrix(NVFP4, 6, 48, torch.Generator(device).manual_seed(2))
    ids = torch.tensor([5, 1, 5], dtype=torch.int32, device=device)
    wide = poisoned((3, 60), torch.float32, device)
    rows = embedding(ids, matrix, out=wide[:, :48], backend=backend)
    assert torch.equal(rows, decode_matrix(matrix)[[5, 1, 5]])
    assert wide[:, 48:].isnan().all()


def test_default_type_is_bfloat16_unless_the_table_is_float32():
    ids = torch.tensor([0])
    for format, dtype in ((Q6, torch.bfloat16), (FP32, torch.float32)):
        table = random_matrix(format, 2, 16, torch.Generator().manual_seed(3))
        assert embedding(ids, table).dtype == dtype
        assert embedding(ids[:0], table).shape == (0, 16)


def test_reference_refuses_an_id_outside_the_table():
    table = random_matrix(Q6, 4, 16, torch.Generator().manual_seed(4))
    with pytest.raises(IndexError):
        embedding(torch.tensor([4]), table)


def test_kernel_reads_no_foreign_memory_for_a_wrong_id(device):
    """The nearest row stands in: wrong ids are refused before they reach the device."""
    table = random_matrix(Q6, 4, 16, torch.Generator(device).manual_seed(5))
    ids = torch.tensor([-7, 400000], device=device)
    rows = embedding(ids, table, out_dtype=torch.float32, backend=TRITON)
    assert torch.equal(rows, decode_matrix(table)[[0, 3]])


def test_errors_name_what_does_not_fit():
    table = random_matrix(Q6, 4, 16, torch.Generator().manual_seed(6))
    with pytest.raises(ValueError, match=r"ids of embedding: got \[1, 1\] torch.int64, want \[T\]"):
        embedding(torch.tensor([[1]]), table)
    with pytest.raises(ValueError, match=r"got .* torch\.float32, want .* int32 or int64"):
        embedding(torch.tensor([1.0]), table)
    with pytest.raises(ValueError, match=r"out of embedding: got \[1, 15\] .* want \[1, 16\]"):
        embedding(torch.tensor([1]), table, out=torch.zeros(1, 15))
