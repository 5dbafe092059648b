"""GELU: the tanh form of the vision blocks and the exact form of the merger."""

from ninfer_kernels.gelu.op import GELU_KINDS, gelu

__all__ = ["GELU_KINDS", "gelu"]
