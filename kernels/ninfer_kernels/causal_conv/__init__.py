"""Depthwise causal convolution over four columns, with SiLU, from a ring of raw columns."""

from ninfer_kernels.causal_conv.op import causal_conv_prefill, causal_conv_round

__all__ = ["causal_conv_prefill", "causal_conv_round"]
