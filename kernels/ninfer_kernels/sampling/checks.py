"""What operations on rows of logits refuse; every ValueError names what, got and want."""

from __future__ import annotations

import torch

from ninfer_kernels.sampling.parameters import (
    BLOCK,
    CANDIDATES,
    Candidates,
    CandidateWorkspace,
    Penalties,
)


def check_logits(logits: torch.Tensor) -> None:
    """Refuse all but fp32 or bf16 [R, V], contiguous in V, V at least 1."""
    fits = logits.dim() == 2 and logits.dtype in (torch.float32, torch.bfloat16)
    if not fits or logits.shape[1] < 1 or (logits.stride(1) != 1 and logits.shape[1] > 1):
        raise ValueError(
            f"logits: got {logits.dtype} {tuple(logits.shape)}, want fp32 or bf16 [R, V >= 1], "
            "contiguous in V"
        )


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    device: torch.device,
    *,
    gaps: bool = False,
) -> None:
    """Refuse another dtype, shape or device, and, without `gaps`, gaps between elements."""
    if tensor.dtype != dtype or tuple(tensor.shape) != shape or tensor.device != device:
        got = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        raise ValueError(f"{name}: got {got}, want {dtype} {list(shape)} on {device}")
    if not gaps and not tensor.is_contiguous():
        raise ValueError(f"{name}: got strides {tensor.stride()}, want contiguous")


def check_candidates(
    found: Candidates, rows: int, device: torch.device, *, whole: bool = True
) -> None:
    """Refuse candidates of other than `rows` rows of 64; without `whole`, of more than 64."""
    columns = found.ids.shape[-1] if found.ids.dim() else 0
    wide = (rows, CANDIDATES if whole else min(columns, CANDIDATES))
    for name, dtype, shape in (
        ("ids", torch.int32, wide),
        ("logits", torch.float32, wide),
        ("log_sum", torch.float32, (rows,)),
        ("flags", torch.int32, (rows,)),
    ):
        tensor = getattr(found, name)
        # What torch computes with may have gaps, kernels may not.
        check_tensor(f"candidates.{name}", tensor, dtype, shape, device, gaps=not whole)


def check_workspace(space: CandidateWorkspace, rows: int, vocabulary: int) -> None:
    """Refuse a workspace of fewer than `rows` rows; flat sizes count, more room is fine."""
    blocks = -(-vocabulary // BLOCK)
    if space.largest.numel() < rows * blocks:
        got, want = space.largest.numel(), rows * blocks
        raise ValueError(f"workspace: got room for {got} blocks, want {want}")


def check_penalties(penalties: Penalties, lanes: int, device: torch.device) -> None:
    """Refuse penalties that are not fp32 [lanes]."""
    for name, tensor in vars(penalties).items():
        check_tensor(name, tensor, torch.float32, (lanes,), device)


def check_history(
    logits: torch.Tensor,
    lanes: int,
    prompt: torch.Tensor | None,
    drafts: torch.Tensor | None,
    bias_ids: torch.Tensor | None,
    bias_values: torch.Tensor | None,
    mask: torch.Tensor | None,
) -> None:
    """Refuse optional inputs of `apply_penalties` that do not fit logits [R, V] and `lanes`."""
    (rows, vocabulary), device = logits.shape, logits.device
    if prompt is not None:
        check_tensor("prompt", prompt, torch.uint8, (lanes, vocabulary), device)
    if drafts is not None:
        count = drafts.shape[-1] if drafts.dim() else 0
        check_tensor("drafts", drafts, torch.int32, (rows, count), device)
    if (bias_ids is None) != (bias_values is None):
        raise ValueError("bias: got one of bias_ids and bias_values, want both or none")
    if bias_ids is not None and bias_values is not None:
        count = bias_ids.shape[-1] if bias_ids.dim() else 0
        check_tensor("bias_ids", bias_ids, torch.int32, (lanes, count), device)
        check_tensor("bias_values", bias_values, torch.float32, (lanes, count), device)
    if mask is not None:
        check_tensor("mask", mask, torch.int32, (rows, -(-vocabulary // 32)), device)
