"""Rows of the token table."""

from ninfer_kernels.embedding.op import embedding

__all__ = ["embedding"]
