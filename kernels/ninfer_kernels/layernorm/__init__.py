"""Layer normalisation with bias, for the vision tower."""

from ninfer_kernels.layernorm.op import layernorm

__all__ = ["layernorm"]
