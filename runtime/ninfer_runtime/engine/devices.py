"""Settings of torch that the engine's numbers depend on."""

from __future__ import annotations

import torch


def prepare_device(device: torch.device) -> None:
    """Keep sums of products in float32 on a GPU (rule N-10)."""
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_tf32 = False
