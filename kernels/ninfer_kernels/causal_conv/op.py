"""Causal convolution: checks, choice of implementation, launch."""

from __future__ import annotations

import torch

from ninfer_kernels.causal_conv import reference
from ninfer_kernels.causal_conv.reference import HISTORY, TAPS
from ninfer_kernels.launch import TRITON, choose_backend


def causal_conv_round(
    mixed: torch.Tensor,
    weight: torch.Tensor,
    window: torch.Tensor,
    slots: torch.Tensor,
    columns: torch.Tensor,
    base: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Convolve the columns of one round; return silu(conv), [L, W, C] in the dtype of `mixed`.

    mixed [L, W, C]: projected columns, before activation; the last dimension is contiguous, the
    others may be strided. weight [4, C]: tap-major, oldest tap first. window [S, N, C]: a ring of
    raw columns, that of token position p at index p mod N; same dtype as `mixed`. slots, columns,
    base [L]: int32. Lane l works on slot slots[l], of which no two active lanes may share one; its
    columns are at positions base .. base + columns - 1 and its history is the three columns before
    them, 0 before position 0. With N >= 3 + 2 W the columns of the last two rounds can be taken
    back by lowering base. A lane with 0 columns touches nothing and its slot index is not read;
    outputs of padded columns are 0.

    Formula: Qwen3.5's short convolution (depthwise, 4 taps, no bias, SiLU). Raises ValueError.
    """
    _check(mixed, weight, window, slots, base)
    lanes, width, _ = mixed.shape
    least = HISTORY + 2 * width
    if window.shape[1] < least:
        raise ValueError(f"window: got {window.shape[1]} columns, want at least {least}")
    _check_indices("columns", columns, lanes)
    out = _prepare_output(mixed, out)
    if choose_backend(mixed, backend) == TRITON:
        from ninfer_kernels.causal_conv import kernel

        return kernel.launch_round(mixed, weight, window, slots, columns, base, out)
    return reference.convolve_round(mixed, weight, window, slots, columns, base, out)


def causal_conv_prefill(
    mixed: torch.Tensor,
    weight: torch.Tensor,
    window: torch.Tensor,
    slots: torch.Tensor,
    base: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Convolve T columns of one sequence; return [1, T, C] in the dtype of `mixed`.

    Arguments as for `causal_conv_round` with L = 1, any T >= 1. Afterwards the window holds
    the three columns before position base + T.
    """
    _check(mixed, weight, window, slots, base)
    if mixed.shape[0] != 1:
        raise ValueError(f"mixed: got {mixed.shape[0]} sequences, want 1 in a prefill chunk")
    out = _prepare_output(mixed, out)
    if choose_backend(mixed, backend) == TRITON:
        from ninfer_kernels.causal_conv import kernel

        return kernel.launch_prefill(mixed, weight, window, slots, base, out)
    return reference.convolve_prefill(mixed, weight, window, slots, base, out)


def _check(
    mixed: torch.Tensor,
    weight: torch.Tensor,
    window: torch.Tensor,
    slots: torch.Tensor,
    base: torch.Tensor,
) -> None:
    if mixed.dim() != 3 or mixed.stride(2) != 1:
        raise ValueError(f"mixed: got {tuple(mixed.shape)}, want [L, W, C] with contiguous C")
    channels = mixed.shape[2]
    if tuple(weight.shape) != (TAPS, channels) or not weight.is_contiguous():
        raise ValueError(f"weight: got {tuple(weight.shape)}, want contiguous [{TAPS}, {channels}]")
    if window.dim() != 3 or window.shape[2] != channels or not window.is_contiguous():
        raise ValueError(f"window: got {tuple(window.shape)}, want contiguous [S, n, {channels}]")
    if window.shape[1] < HISTORY:
        raise ValueError(f"window: got {window.shape[1]} columns, want at least {HISTORY}")
    if window.dtype != mixed.dtype:
        raise ValueError(f"window: got {window.dtype}, want the dtype of mixed, {mixed.dtype}")
    _check_indices("slots", slots, mixed.shape[0])
    _check_indices("base", base, mixed.shape[0])


def _check_indices(name: str, tensor: torch.Tensor, count: int) -> None:
    if tensor.dtype != torch.int32 or tuple(tensor.shape) != (count,):
        raise ValueError(f"{name}: got {tensor.dtype} {tuple(tensor.shape)}, want int32 [{count}]")


def _prepare_output(mixed: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    if out is None:
        return torch.empty(mixed.shape, dtype=mixed.dtype, device=mixed.device)
    if out.shape != mixed.shape or out.dtype != mixed.dtype or not out.is_contiguous():
        raise ValueError(f"out: got {out.dtype} {tuple(out.shape)}, want {tuple(mixed.shape)}")
    return out
