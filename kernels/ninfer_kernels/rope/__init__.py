"""Rotary position embedding: per-head norm with partial interleaved M-RoPE, plain, vision."""

from ninfer_kernels.rope.op import normalise_and_rotate, rotate
from ninfer_kernels.rope.rotation import Rotation, Yarn, text_rotation, vision_rotation

__all__ = [
    "Rotation",
    "Yarn",
    "normalise_and_rotate",
    "rotate",
    "text_rotation",
    "vision_rotation",
]
