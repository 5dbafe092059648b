"""Shapes `moe` is tested and measured with, odd ones first."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.checking import ROUNDOFF, error_share, poisoned, rounded_bound, sum_bound
from ninfer_kernels.launch import REFERENCE
from ninfer_kernels.linear.cases import random_matrix
from ninfer_kernels.linear.decoding import decode_matrix
from ninfer_kernels.linear.matrix import BF16, FORMATS, FP8, NVFP4, Q4, Q5, Matrix
from ninfer_kernels.linear.plan import MAX_SKINNY
from ninfer_kernels.moe.experts import (
    MoeWeights,
    MoeWorkspace,
    SharedExpert,
    make_workspace,
    split_gate_up,
    stack_experts,
)
from ninfer_kernels.moe.op import moe


@dataclass(frozen=True)
class MoeCase:
    """`tokens` rows of width `hidden`; `experts` of `width`, `top_k` of them chosen."""

    format: str
    tokens: int
    hidden: int
    experts: int
    top_k: int
    width: int
    shared_width: int
    dtype: torch.dtype = torch.bfloat16
    joined: bool = True
    small: bool = False

    @property
    def name(self) -> str:
        return (
            f"{self.format} {self.tokens}x{self.hidden} {self.top_k} of {self.experts}"
            f"x{self.width} {self.dtype}"
        )


CASES: tuple[MoeCase, ...] = (
    MoeCase(Q5, 2, 130, 5, 2, 20, 24, joined=False, small=True),
    MoeCase(NVFP4, 1, 48, 6, 3, 33, 0, small=True),
    MoeCase(Q4, 1, 64, 4, 2, 32, 16, torch.float32, small=True),
    MoeCase(NVFP4, 37, 80, 3, 2, 48, 16, small=True),
    MoeCase(Q4, 17, 64, 7, 1, 20, 0, joined=False, small=True),
    *(MoeCase(format, 1, 2048, 256, 8, 512, 512) for format in FORMATS),
    *(MoeCase(NVFP4, tokens, 2048, 256, 8, 512, 512) for tokens in (4, 16, 17, 300, 4096)),
    *(MoeCase(format, 1024, 2048, 256, 8, 512, 512) for format in (Q4, Q5, FP8, BF16)),
    MoeCase(NVFP4, 4, 4096, 512, 10, 1024, 1024),
)


def make_inputs(
    case: MoeCase, device: torch.device | str, seed: int
) -> tuple[torch.Tensor, MoeWeights]:
    """Return x [tokens, hidden] and random weights."""
    generator = torch.Generator(device).manual_seed(seed)

    def matrix(rows: int, columns: int, format: str = case.format) -> Matrix:
        return random_matrix(format, rows, columns, generator)

    rows = case.experts * case.width
    if case.joined:
        gate, up = split_gate_up(matrix(2 * rows, case.hidden), case.experts)
    else:
        gate = stack_experts(matrix(rows, case.hidden), case.experts)
        up = stack_experts(matrix(rows, case.hidden, BF16), case.experts)
    down = stack_experts(matrix(case.experts * case.hidden, case.width), case.experts)
    shared = None
    if case.shared_width:
        gate_up = (matrix(2 * case.shared_width, case.hidden),)
        score = matrix(1, case.hidden, BF16)
        shared = SharedExpert(gate_up, matrix(case.hidden, case.shared_width), score)
    router = matrix(case.experts, case.hidden, BF16)
    x = torch.randn(case.tokens, case.hidden, device=device, generator=generator) * 2
    return x.to(case.dtype), MoeWeights(router, gate, up, down, case.top_k, shared)


@dataclass(frozen=True)
class Bounded:
    """Exact float64 values and what rules allow their computation to be off."""

    value: torch.Tensor
    bound: torch.Tensor


def bound_product(x: Bounded, matrix: Matrix, weight_error: float = 0.0) -> Bounded:
    """Return x times a matrix (rules N-8, N-10), the error of x passed on."""
    weight = decode_matrix(matrix).double()
    sizes = (x.value.abs() + x.bound) @ weight.abs().T
    own = sum_bound(sizes, matrix.columns, 3 * 2.0**-24 + weight_error)
    return Bounded(x.value @ weight.T, x.bound @ weight.abs().T + own)


def bound_rounding(x: Bounded, dtype: torch.dtype) -> Bounded:
    """Return x rounded once to `dtype` (rule N-3)."""
    return Bounded(x.value, rounded_bound(x.value, dtype, x.bound))


def bound_swiglu(gate: Bounded, up: Bounded) -> Bounded:
    """Return silu(gate) * up (rule N-13); silu's slope stays below 1.1."""
    silu = gate.value * torch.sigmoid(gate.value)
    value = silu * up.value
    passed = 1.1 * gate.bound * (up.value.abs() + up.bound) + silu.abs() * up.bound
    own = value.abs() * (2.0**-20 + gate.value.abs() * 2.0**-24)
    return Bounded(value, passed + own + (gate.value * up.value).abs() * 2.0**-126)


def _bound_experts(
    x: Bounded, weights: MoeWeights, space: MoeWorkspace, dtype: torch.dtype
) -> Bounded:
    """Return sum_j w_j * pair_j with the chosen experts and weights of `space`, before rounding."""
    value = torch.zeros_like(x.value)
    bound = torch.zeros_like(x.value)
    for expert in torch.unique(space.ids).tolist():
        tokens, places = torch.nonzero(space.ids == expert, as_tuple=True)
        part = Bounded(x.value[tokens], x.bound[tokens])
        gate = bound_product(part, weights.gate.expert(expert))
        up = bound_product(part, weights.up.expert(expert))
        inner = bound_rounding(bound_swiglu(gate, up), dtype)
        pair = bound_rounding(bound_product(inner, weights.down.expert(expert)), dtype)
        share = space.weights[tokens, places].double()[:, None]
        value.index_add_(0, tokens, share * pair.value)
        size = pair.value.abs() * ((weights.top_k + 4) * 2.0**-24) + pair.bound
        bound.index_add_(0, tokens, share * size)
    return Bounded(value, bound)


def _bound_shared(
    x: Bounded, shared: SharedExpert, dtype: torch.dtype, weight_error: float
) -> Bounded:
    (gate_up,) = shared.gate_up
    both = bound_rounding(bound_product(x, gate_up, weight_error), dtype)
    gate, up = both.value.chunk(2, dim=1), both.bound.chunk(2, dim=1)
    inner = bound_rounding(bound_swiglu(Bounded(gate[0], up[0]), Bounded(gate[1], up[1])), dtype)
    out = bound_rounding(bound_product(inner, shared.down, weight_error), dtype)
    score = bound_product(x, shared.score)
    share = torch.sigmoid(score.value)
    # The slope of the sigmoid is at most 1/4.
    slack = score.bound / 4 + share * 2.0**-20
    size = out.value.abs() + out.bound
    return Bounded(share * out.value, share * out.bound + slack * size)


def routing_error(space: MoeWorkspace) -> float:
    """Return the error of ids and weights against the exact softmax of the logits they got."""
    logits = space.logits.double()
    order = torch.sort(logits, dim=1, descending=True, stable=True).indices
    want_ids = order[:, : space.ids.shape[1]]
    chosen = torch.softmax(logits, dim=1).gather(1, want_ids)
    want = chosen / chosen.sum(dim=1, keepdim=True)
    spread = (logits - logits.max(dim=1, keepdim=True).values).gather(1, want_ids).abs()
    bound = rounded_bound(want, space.weights.dtype, want * (2.0**-18 + spread * 2.0**-22))
    ids_differ = error_share(space.ids, want_ids, 0.0)
    return max(ids_differ, error_share(space.weights, want, bound))


def poisoned_workspace(
    case: MoeCase, weights: MoeWeights, device: torch.device | str
) -> MoeWorkspace:
    """Return a workspace that no result may be taken from unwritten."""
    space = make_workspace(case.tokens, weights, case.dtype, device)
    for tensor in (
        space.logits,
        space.weights,
        space.hidden,
        space.pairs,
        space.shared_gate_up,
        space.shared_hidden,
        space.shared_out,
        space.score,
    ):
        tensor.fill_(float("nan"))
    space.ids.fill_(-1)
    space.scratch.fill_(0xFF)
    return space


def worst_error(case: MoeCase, device: torch.device | str, seed: int, backend: str) -> float:
    """Return the largest error of a backend as a share of what is allowed; outputs are poisoned."""
    x, weights = make_inputs(case, device, seed)
    space = poisoned_workspace(case, weights, device)
    out = poisoned((case.tokens, case.hidden), case.dtype, device)
    moe(x, weights, out=out, workspace=space, backend=backend)
    exact = Bounded(x.double(), torch.zeros_like(x, dtype=torch.float64))
    total = _bound_experts(exact, weights, space, case.dtype)
    if weights.shared is not None:
        decoded = backend != REFERENCE and case.tokens > MAX_SKINNY and case.format != BF16
        error = ROUNDOFF[case.dtype] if decoded else 0.0
        shared = _bound_shared(exact, weights.shared, case.dtype, error)
        total = Bounded(total.value + shared.value, total.bound + shared.bound)
    bound = rounded_bound(total.value, case.dtype, total.bound)
    return max(routing_error(space), error_share(out, total.value, bound))
