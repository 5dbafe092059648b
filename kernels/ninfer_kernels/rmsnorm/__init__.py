"""Root-mean-square normalisation: plain, with a fused residual add, and gated."""

from ninfer_kernels.rmsnorm.op import add_rmsnorm, gated_rmsnorm, rmsnorm

__all__ = ["add_rmsnorm", "gated_rmsnorm", "rmsnorm"]
