"""Depthwise causal convolution over four columns, with SiLU, from a per-slot window."""

from ninfer_kernels.causal_conv.op import causal_conv_prefill, causal_conv_round, fold_window

__all__ = ["causal_conv_prefill", "causal_conv_round", "fold_window"]
