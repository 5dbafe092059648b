"""Mixture-of-experts layers: routing, the chosen experts, and the shared expert."""

from __future__ import annotations

import torch

from ninfer_kernels.launch import REFERENCE, choose_backend
from ninfer_kernels.linear.op import linear, linear_group
from ninfer_kernels.linear.plan import MAX_SKINNY
from ninfer_kernels.moe.experts import MoeWeights, MoeWorkspace, SharedExpert, make_workspace
from ninfer_kernels.moe.reference import combine_reference, experts_reference, route_reference
from ninfer_kernels.swiglu.op import swiglu


def moe(
    x: torch.Tensor,
    weights: MoeWeights,
    *,
    out: torch.Tensor | None = None,
    workspace: MoeWorkspace | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Return [T, H]: the weighted experts of every row of x, and the shared expert.

    y = sum_e w_e down_e(silu(gate_e x) * up_e x) + sigmoid(score x) * shared(x), with w from
    `route`. x is [T, H] in float32 or bfloat16 with contiguous rows. With `out` and a `workspace`
    for at least T tokens nothing is allocated for up to 16 tokens; beyond, pairs are grouped by
    expert, which does allocate. Nothing waits for the device. Rules N-14 to N-17. Raises
    ValueError for shapes, dtypes or devices that do not fit.
    """
    if x.dim() != 2 or x.shape[1] != weights.hidden:
        raise ValueError(f"x of moe: got {list(x.shape)}, want [T, {weights.hidden}]")
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.shape != x.shape or out.device != x.device or out.stride(1) != 1:
        raise ValueError(f"out of moe: got {list(out.shape)} on {out.device}, want {list(x.shape)}")
    if x.shape[0] == 0:
        return out
    if workspace is None:
        workspace = make_workspace(x.shape[0], weights, x.dtype, x.device)
    space = workspace.of(x.shape[0])
    if space.hidden.dtype != x.dtype:
        raise ValueError(f"workspace of moe: got {space.hidden.dtype}, want {x.dtype}")
    linear(x, weights.router, out=space.logits, scratch=space.scratch, backend=backend)
    route(space.logits, weights.top_k, ids=space.ids, weights=space.weights, backend=backend)
    _run_experts(x, weights, space, backend)
    shared, score = None, None
    if weights.shared is not None:
        shared, score = _run_shared(x, weights.shared, space, backend)
    if choose_backend(x, backend) == REFERENCE:
        combine_reference(space.pairs, space.weights, shared, score, out)
    else:
        from ninfer_kernels.moe.kernel import launch_combine

        launch_combine(space.pairs, space.weights, shared, score, out)
    return out


def route(
    logits: torch.Tensor,
    top_k: int,
    *,
    ids: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
    backend: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids int32 [T, top_k] and weights [T, top_k] of router logits float32 [T, E].

    Softmax in float32, the top_k largest with the lower expert first among equals, weights
    divided by their sum and rounded once to `dtype` or the type of the given `weights` (rules
    N-14, N-15). Raises ValueError for shapes and dtypes that do not fit.
    """
    if logits.dim() != 2 or logits.dtype != torch.float32 or not logits.is_contiguous():
        raise ValueError(f"logits of route: got {list(logits.shape)} {logits.dtype}, want float32")
    want = (logits.shape[0], top_k)
    if not 1 <= top_k <= logits.shape[1]:
        raise ValueError(f"top_k of route: got {top_k}, want 1..{logits.shape[1]}")
    if ids is None:
        ids = torch.empty(want, dtype=torch.int32, device=logits.device)
    if weights is None:
        weights = torch.empty(want, dtype=dtype, device=logits.device)
    if tuple(ids.shape) != want or ids.dtype != torch.int32 or not ids.is_contiguous():
        raise ValueError(f"ids of route: got {list(ids.shape)} {ids.dtype}, want {want} int32")
    if tuple(weights.shape) != want or not weights.is_contiguous():
        raise ValueError(f"weights of route: got {list(weights.shape)}, want {list(want)}")
    if choose_backend(logits, backend) == REFERENCE:
        route_reference(logits, ids, weights)
    else:
        from ninfer_kernels.moe.kernel import launch_route

        launch_route(logits, ids, weights)
    return ids, weights


def _run_experts(
    x: torch.Tensor, weights: MoeWeights, space: MoeWorkspace, backend: str | None
) -> None:
    if choose_backend(x, backend) == REFERENCE:
        experts_reference(x, weights, space.ids, space.hidden, space.pairs)
    elif x.shape[0] <= MAX_SKINNY or x.dtype == torch.float32:
        from ninfer_kernels.moe.kernel import launch_pairs

        launch_pairs(x, weights, space.ids, space.hidden, space.pairs)
    else:
        from ninfer_kernels.moe.kernel_groups import launch_groups

        launch_groups(x, weights, space.ids, space.hidden, space.pairs)


def _run_shared(
    x: torch.Tensor, shared: SharedExpert, space: MoeWorkspace, backend: str | None
) -> tuple[torch.Tensor, torch.Tensor]:
    scratch = space.scratch
    linear_group(x, shared.gate_up, out=space.shared_gate_up, scratch=scratch, backend=backend)
    swiglu(space.shared_gate_up, out=space.shared_hidden, backend=backend)
    linear(space.shared_hidden, shared.down, out=space.shared_out, scratch=scratch, backend=backend)
    linear(x, shared.score, out=space.score, scratch=scratch, backend=backend)
    return space.shared_out, space.score
