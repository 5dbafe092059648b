"""Mixture-of-experts layers."""

from ninfer_kernels.moe.experts import (
    ExpertStack,
    MoeWeights,
    MoeWorkspace,
    SharedExpert,
    make_workspace,
    split_gate_up,
    stack_experts,
)
from ninfer_kernels.moe.op import moe, route

__all__ = [
    "ExpertStack",
    "MoeWeights",
    "MoeWorkspace",
    "SharedExpert",
    "make_workspace",
    "moe",
    "route",
    "split_gate_up",
    "stack_experts",
]
