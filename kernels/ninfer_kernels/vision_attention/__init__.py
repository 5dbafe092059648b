"""Full attention inside each frame of the vision tower."""

from ninfer_kernels.vision_attention.op import vision_attention

__all__ = ["vision_attention"]
