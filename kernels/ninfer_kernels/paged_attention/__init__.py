"""Causal attention over the paged cache: prefill, decode and verify."""

from ninfer_kernels.paged_attention.op import paged_attention
from ninfer_kernels.paged_attention.plan import AttentionPlan, Machine, machine_of, plan_attention

__all__ = ["AttentionPlan", "Machine", "machine_of", "paged_attention", "plan_attention"]
