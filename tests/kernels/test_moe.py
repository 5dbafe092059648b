"""Laws of routing and experts (rules N-14 to N-17)."""

from __future__ import annotations

import pytest
import torch

from ninfer_kernels.checking import poisoned
from ninfer_kernels.launch import REFERENCE, TRITON
from ninfer_kernels.linear.cases import random_matrix
from ninfer_kernels.linear.decoding import decode_matrix
from ninfer_kernels.linear.matrix import FP32, NVFP4, Q4, Matrix
from ninfer_kernels.moe import (
    ExpertStack,
    MoeWeights,
    make_workspace,
    moe,
    route,
    split_gate_up,
    stack_experts,
)
from ninfer_kernels.moe.cases import CASES, MoeCase, make_inputs, worst_error

SMALL = [case for case in CASES if case.small]
BACKENDS = [REFERENCE, TRITON]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
@pytest.mark.parametrize("backend", BACKENDS)
def test_layer_is_within_its_bound_of_the_exact_one(case, backend, device):
    """N-14 to N-17; outputs and workspace are poisoned."""
    assert worst_error(case, device, 1, backend) <= 1


def plain_token(x: torch.Tensor, weights: MoeWeights) -> torch.Tensor:
    """One token [H] by the formula of the family, in float64 and without any bound."""

    def feed_forward(gate: Matrix, up: Matrix, down: Matrix) -> torch.Tensor:
        g, u = decode_matrix(gate).double() @ x, decode_matrix(up).double() @ x
        return decode_matrix(down).double() @ (g / (1 + torch.exp(-g)) * u)

    logits = decode_matrix(weights.router).double() @ x
    p = torch.exp(logits) / torch.exp(logits).sum()
    chosen = sorted(range(len(p)), key=lambda e: (-p[e].item(), e))[: weights.top_k]
    total = sum(p[e] for e in chosen)
    y = torch.zeros_like(x)
    for e in chosen:
        parts = (stack.expert(e) for stack in (weights.gate, weights.up, weights.down))
        y += p[e] / total * feed_forward(*parts)
    shared = weights.shared
    assert shared is not None
    (both,) = shared.gate_up
    half = both.rows // 2
    score = (decode_matrix(shared.score).double() @ x)[0]
    inner = feed_forward(both.cut_rows(0, half), both.cut_rows(half, both.rows), shared.down)
    return y + inner / (1 + torch.exp(-score))


@pytest.mark.parametrize("backend", BACKENDS)
def test_layer_equals_the_plain_formula_token_by_token(backend, device):
    """N-17, by an independent definition without chosen ids or bounds from the operation."""
    case = MoeCase(Q4, 3, 48, 5, 2, 24, 16, torch.float32)
    x, weights = make_inputs(case, device, 3)
    got = moe(x, weights, backend=backend)
    for t in range(3):
        want = plain_token(x[t].double(), weights)
        assert torch.allclose(got[t].double(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_logits_choose_the_lower_expert_first(backend, device):
    """N-6, N-14."""
    logits = torch.tensor([[1.0, 3, 3, 0, 3], [0, 0, 0, 0, 0], [-5, -9, -5, -7, -7]], device=device)
    ids, weights = route(logits, 3, dtype=torch.float32, backend=backend)
    assert ids.tolist() == [[1, 2, 4], [0, 1, 2], [0, 2, 3]]
    assert weights[:2].flatten().tolist() == pytest.approx([1 / 3] * 6, rel=1e-6)
    tail = float(torch.tensor(-2.0).exp())
    want = [1 / (2 + tail), 1 / (2 + tail), tail / (2 + tail)]
    assert weights[2].tolist() == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_non_finite_logits_still_name_experts_that_exist(backend, device):
    """A poisoned row must not make the next kernel read foreign memory."""
    logits = torch.full((1, 5), float("nan"), device=device)
    ids, _ = route(logits, 3, backend=backend)
    assert ((ids >= 0) & (ids < 5)).all()


def test_a_token_keeps_its_bits_whatever_stands_beside_it(device):
    """N-5, N-16: for up to 16 rows, with NaN beside it."""
    x, weights = make_inputs(MoeCase(NVFP4, 3, 32, 4, 2, 16, 16), device, 5)
    alone = moe(x[1:2], weights, backend=TRITON)
    x[0], x[2] = float("nan"), 1e4
    assert torch.equal(moe(x, weights, backend=TRITON)[1:2], alone)


def test_workspace_of_more_tokens_serves_fewer(device):
    """Nothing of the larger workspace leaks into the result."""
    x, weights = make_inputs(MoeCase(Q4, 2, 32, 4, 2, 16, 16), device, 6)
    space = make_workspace(5, weights, x.dtype, device)
    space.hidden.fill_(float("nan"))
    out = poisoned((2, 32), x.dtype, device)
    for backend in BACKENDS:
        moe(x, weights, out=out, workspace=space, backend=backend)
        assert torch.equal(out, moe(x, weights, backend=backend))
    with pytest.raises(ValueError, match="tokens of a workspace: got 6, want at most 5"):
        space.of(6)


def test_every_token_may_choose_one_expert(device):
    """Groups of very unequal size: all pairs in one, the other experts empty."""
    x, weights = make_inputs(MoeCase(Q4, 40, 32, 3, 1, 16, 0), device, 7)
    router = random_matrix(FP32, 3, 32, torch.Generator(device).manual_seed(8))
    router.planes["values"].zero_()
    weights = MoeWeights(router, weights.gate, weights.up, weights.down, 1)
    want = moe(x, weights, backend=REFERENCE)
    assert torch.allclose(
        moe(x, weights, backend=TRITON).float(), want.float(), rtol=2e-2, atol=0.1
    )


def test_stacks_address_the_rows_of_each_expert():
    matrix = random_matrix(Q4, 12, 32, torch.Generator().manual_seed(9))
    values = decode_matrix(matrix)
    gate, up = split_gate_up(matrix, 3)
    for index in range(3):
        assert torch.equal(decode_matrix(gate.expert(index)), values[4 * index : 4 * index + 2])
        assert torch.equal(decode_matrix(up.expert(index)), values[4 * index + 2 : 4 * index + 4])
        rows = values[3 * index : 3 * index + 3]
        assert torch.equal(decode_matrix(stack_experts(matrix, 4).expert(index)), rows)


def test_errors_name_what_does_not_fit():
    x, weights = make_inputs(MoeCase(Q4, 2, 32, 4, 2, 16, 0), "cpu", 10)
    matrix = weights.down.matrix
    with pytest.raises(ValueError, match=r"x of moe: got \[2, 31\], want \[T, 32\]"):
        moe(x[:, :31], weights)
    with pytest.raises(
        ValueError, match=r"workspace of moe: got torch\.float32, want torch\.bfloat16"
    ):
        moe(x, weights, workspace=make_workspace(2, weights, torch.float32, "cpu"))
    with pytest.raises(ValueError, match="rows of stacked experts: got 128, want >= 129"):
        ExpertStack(matrix, 4, 32, 32, 1)
    with pytest.raises(ValueError, match="rows of 3 experts: got 128, want a multiple"):
        stack_experts(matrix, 3)
    with pytest.raises(ValueError, match=r"top_k: got 5, want 1\.\.4"):
        MoeWeights(weights.router, weights.gate, weights.up, weights.down, 5)
    with pytest.raises(ValueError, match="experts of router, gate, up and down"):
        MoeWeights(weights.router, weights.gate, weights.up, stack_experts(matrix, 2), 1)
    with pytest.raises(ValueError, match=r"top_k of route: got 9, want 1\.\.4"):
        route(torch.zeros(1, 4), 9)
