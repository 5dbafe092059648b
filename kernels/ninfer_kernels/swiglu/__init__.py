"""The gated activation of feed-forward layers."""

from ninfer_kernels.swiglu.op import swiglu

__all__ = ["swiglu"]
