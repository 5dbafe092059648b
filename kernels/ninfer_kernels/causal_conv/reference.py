"""The convolution in plain torch.

    y[i, c] = silu(sum_j weight[j, c] * x[i - 3 + j, c]),  j = 0 .. 3, the oldest tap first

Columns before the block come from the slot's window. Everything is float32 until the result.
"""

from __future__ import annotations

import torch

TAPS = 4
HISTORY = TAPS - 1


def convolve(extended: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return silu of the convolution, fp32 [..., T, C], of `extended` [..., 3 + T, C]."""
    count = extended.shape[-2] - HISTORY
    total = torch.zeros_like(extended[..., :count, :], dtype=torch.float32)
    for tap in range(TAPS):
        total = total + weight[tap].float() * extended[..., tap : tap + count, :].float()
    return total * torch.sigmoid(total)


def gather_history(
    window: torch.Tensor, slots: torch.Tensor, accepted: torch.Tensor
) -> torch.Tensor:
    """Return the three columns before the next one, [n, 3, C], of the named slots."""
    rows = slots.long()
    first = accepted[rows].long()[:, None] + torch.arange(HISTORY, device=window.device)
    return window[rows[:, None], first]


def convolve_round(
    mixed: torch.Tensor,
    weight: torch.Tensor,
    window: torch.Tensor,
    slots: torch.Tensor,
    columns: torch.Tensor,
    accepted: torch.Tensor,
    out: torch.Tensor,
) -> torch.Tensor:
    """Define `causal_conv_round`; idle lanes are left out by a selection that synchronises."""
    width = mixed.shape[1]
    out.zero_()
    active = torch.nonzero(columns > 0).flatten()
    if active.numel() == 0:
        return out
    rows, fresh = slots[active].long(), mixed[active]
    history = gather_history(window, rows, accepted)
    real = torch.arange(width, device=mixed.device) < columns[active, None]
    result = convolve(torch.cat((history, fresh), dim=1), weight)
    out[active] = torch.where(real[..., None], result, 0.0).to(out.dtype)
    window[rows, :HISTORY] = history
    stored = window[rows, HISTORY : HISTORY + width]
    window[rows, HISTORY : HISTORY + width] = torch.where(real[..., None], fresh, stored)
    return out


def convolve_prefill(
    mixed: torch.Tensor,
    weight: torch.Tensor,
    window: torch.Tensor,
    slots: torch.Tensor,
    accepted: torch.Tensor,
    out: torch.Tensor,
) -> torch.Tensor:
    """Define `causal_conv_prefill`."""
    extended = torch.cat((gather_history(window, slots, accepted), mixed), dim=1)
    out.copy_(convolve(extended, weight))
    window[slots.long(), :HISTORY] = extended[:, -HISTORY:]
    return out


def fold_columns(window: torch.Tensor, slots: torch.Tensor, accepted: torch.Tensor) -> None:
    """Define `fold_window`."""
    rows = slots[slots >= 0].long()
    window[rows, :HISTORY] = gather_history(window, rows, accepted)
