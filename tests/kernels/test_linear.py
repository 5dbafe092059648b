"""Laws of `linear`: rules N-1 to N-11 of specs/numerics.md."""

from __future__ import annotations

import pytest
import torch

from ninfer_kernels.checking import error_share, poisoned
from ninfer_kernels.launch import REFERENCE, TRITON
from ninfer_kernels.linear import join_rows, linear, linear_group, scratch_bytes
from ninfer_kernels.linear.cases import (
    CASES,
    LinearCase,
    allowed_error,
    exact,
    make_inputs,
    random_matrix,
    worst_error,
)
from ninfer_kernels.linear.decoding import decode_matrix
from ninfer_kernels.linear.matrix import BF16, FORMATS, FP8, NVFP4, Q4, Q5, Q8
from ninfer_kernels.linear.plan import plan_skinny

SMALL = [case for case in CASES if case.small]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
@pytest.mark.parametrize("backend", [REFERENCE, TRITON])
def test_product_is_within_its_bound_of_the_exact_one(case, backend, device):
    """N-1 to N-4, N-8, N-10; outputs and scratch are poisoned."""
    assert worst_error(case, device, 1, backend) <= 1


def test_exact_result_is_the_sum_over_columns():
    """The float64 oracle of all other tests, against three nested loops."""
    case = LinearCase(Q5, 2, 3, 70, bias=True)
    inputs = make_inputs(case, "cpu", 3)
    weight, bias = decode_matrix(inputs.matrix).tolist(), inputs.bias.tolist()
    result, sizes = exact(inputs)
    for t, x in enumerate(inputs.x.tolist()):
        for n in range(3):
            terms = [x[k] * weight[n][k] for k in range(70)]
            assert result[t, n].item() == pytest.approx(sum(terms) + bias[n], rel=1e-12)
            size = sum(map(abs, terms)) + abs(bias[n])
            assert sizes[t, n].item() == pytest.approx(size, rel=1e-12)


def test_a_wrong_scale_is_far_outside_the_bound():
    """The bound of N-8 is tight enough to tell one group's scale from its neighbour's."""
    case = LinearCase(Q4, 2, 8, 256)
    inputs = make_inputs(case, "cpu", 5)
    result, sizes = exact(inputs)
    inputs.matrix.planes["scale"].copy_(inputs.matrix.planes["scale"].roll(1, dims=1))
    wrong, _ = exact(inputs)
    share = error_share(wrong.float(), result, allowed_error(case, result, sizes, TRITON))
    assert share > 5


def test_a_row_keeps_its_bits_whatever_stands_beside_it(device):
    """N-5: other rows, their number, and NaN in them change nothing."""
    inputs = make_inputs(LinearCase(NVFP4, 16, 40, 576), device, 2)
    together = linear(inputs.x, inputs.matrix, backend=TRITON)
    alone = linear(inputs.x[4:5], inputs.matrix, backend=TRITON)
    assert torch.equal(together[4:5], alone)
    inputs.x[3], inputs.x[5] = float("nan"), float("inf")
    assert torch.equal(linear(inputs.x, inputs.matrix, backend=TRITON)[4:5], alone)


def test_split_sums_repeat_bit_for_bit(device):
    """N-7."""
    inputs = make_inputs(LinearCase(Q8, 2, 5, 1160), device, 4)
    assert plan_skinny(5, 1160).splits > 1
    first = linear(inputs.x, inputs.matrix, backend=TRITON)
    assert torch.equal(first, linear(inputs.x, inputs.matrix, backend=TRITON))


@pytest.mark.parametrize("rows", [1, 64, 65, 5120, 34816, 248320])
@pytest.mark.parametrize("columns", [1, 128, 130, 5120, 17408])
def test_splits_cover_every_column_once(rows, columns):
    plan = plan_skinny(rows, columns)
    assert (plan.splits - 1) * plan.split_k < columns <= plan.splits * plan.split_k
    assert plan.split_k % 128 == 0 and plan.blocks * 64 >= rows


@pytest.mark.parametrize("backend", [REFERENCE, TRITON])
@pytest.mark.parametrize("tokens", [2, 17])
def test_group_of_formats_lies_side_by_side(backend, tokens, device):
    """N-11."""
    generator = torch.Generator(device).manual_seed(7)
    matrices = [random_matrix(f, n, 130, generator) for f, n in ((Q4, 3), (FP8, 70), (BF16, 1))]
    x = torch.randn(tokens, 130, device=device, generator=generator).bfloat16()
    wide = poisoned((tokens, 80), torch.bfloat16, device)
    group = linear_group(x, matrices, out=wide[:, 4:78], backend=backend)
    single = [linear(x, matrix, backend=backend) for matrix in matrices]
    want = torch.cat(single, dim=1)
    assert torch.equal(group, want) if tokens <= 16 else torch.allclose(group, want, rtol=2e-2)
    assert wide[:, :4].isnan().all() and wide[:, 78:].isnan().all()


def test_rows_of_x_may_lie_apart(device):
    inputs = make_inputs(LinearCase(Q5, 4, 10, 256), device, 8)
    apart = torch.full((4, 300), float("nan"), device=device, dtype=torch.bfloat16)
    apart[:, :256] = inputs.x
    for backend in (REFERENCE, TRITON):
        want = linear(inputs.x, inputs.matrix, backend=backend)
        assert torch.equal(linear(apart[:, :256], inputs.matrix, backend=backend), want)


def test_wide_product_takes_any_scratch_of_whole_rows(device):
    """N-10: one row at a time or all at once, the same numbers within rounding."""
    case = LinearCase(NVFP4, 20, 7, 64)
    inputs = make_inputs(case, device, 9)
    result, sizes = exact(inputs)
    for rows in (1, 3, 7, 50):
        scratch = torch.empty(rows * 64 * 2, dtype=torch.uint8, device=device)
        got = linear(inputs.x, inputs.matrix, scratch=scratch, backend=TRITON)
        assert error_share(got, result, allowed_error(case, result, sizes, TRITON)) <= 1


def test_reference_decodes_in_blocks_of_rows(monkeypatch):
    import ninfer_kernels.linear.reference as reference

    inputs = make_inputs(LinearCase(Q4, 2, 30, 128, torch.float32, bias=True), "cpu", 10)
    whole = linear(inputs.x, inputs.matrix, inputs.bias)
    monkeypatch.setattr(reference, "BLOCK_VALUES", 7 * 128)
    blocks = linear(inputs.x, inputs.matrix, inputs.bias)
    assert torch.allclose(whole, blocks, rtol=0, atol=1e-5)


def test_no_rows_give_an_empty_result():
    inputs = make_inputs(LinearCase(Q4, 1, 30, 128), "cpu", 11)
    for backend in (REFERENCE, TRITON):
        assert linear(inputs.x[:0], inputs.matrix, backend=backend).shape == (0, 30)


def test_joined_matrix_gives_the_joined_result(device):
    generator = torch.Generator(device).manual_seed(12)
    for format in FORMATS:
        parts = [random_matrix(format, n, 144, generator) for n in (3, 5)]
        x = torch.randn(2, 144, device=device, generator=generator)
        want = torch.cat([linear(x, part) for part in parts], dim=1)
        assert torch.allclose(linear(x, join_rows(parts)), want, rtol=1e-5, atol=1e-6)


def test_errors_name_what_does_not_fit():
    generator = torch.Generator().manual_seed(0)
    matrix = random_matrix(Q4, 4, 128, generator)
    x = torch.zeros(2, 128)
    for arguments, text in (
        ({"x": torch.zeros(2, 127)}, r"x of linear: got \[2, 127\], want \[T, 128\]"),
        ({"x": torch.zeros(2, 128).half()}, "got torch.float16, want float32 or bfloat16"),
        ({"x": torch.zeros(128, 2).T}, "want contiguous rows"),
        ({"bias": torch.zeros(3)}, r"bias of linear: got \[3\] on cpu, want \[4\]"),
        ({"out": torch.zeros(2, 5)}, r"out of linear: got \[2, 5\] .*, want \[2, 4\]"),
        ({"out": torch.zeros(2, 4), "out_dtype": torch.bfloat16}, "want .* torch.bfloat16"),
        ({"backend": "cuda"}, "unknown backend: got cuda, want reference or triton"),
    ):
        with pytest.raises(ValueError, match=text):
            linear(**{"x": x, "matrix": matrix, **arguments})
    with pytest.raises(ValueError, match="scratch: got 10 bytes, want at least 512"):
        scratch = torch.zeros(10, dtype=torch.uint8)
        linear(torch.zeros(20, 128), matrix, scratch=scratch, backend=TRITON)
    with pytest.raises(ValueError, match=r"out of a group: got \[2, 7\], want \[2, 8\]"):
        linear_group(x, [matrix, matrix], out=torch.zeros(2, 7))


def test_scratch_is_bounded_for_large_matrices():
    """Half a gibibyte at most for a decoded head; none where nothing is decoded or split."""
    generator = torch.Generator().manual_seed(0)
    small = random_matrix(BF16, 64, 128, generator)
    assert scratch_bytes(1024, small, torch.bfloat16) == 0
    assert scratch_bytes(1024, small, torch.float32) == 64 * 128 * 4
    head = small.cut_rows(0, 1)
    object.__setattr__(head, "rows", 248320)
    object.__setattr__(head, "format", NVFP4)
    object.__setattr__(head, "columns", 5120)
    assert scratch_bytes(1024, head, torch.bfloat16) == (512 << 20) // 10240 * 10240
