"""The convolution in plain torch.

    y[i, c] = silu(sum_j weight[j, c] * x[i - 3 + j, c]),  j = 0 .. 3, the oldest tap first

Columns before the block come from the slot's window, a ring in which the column at token position
p lies at index p mod N; columns before position 0 are 0. Everything is float32 until the result.
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


def gather_history(window: torch.Tensor, rows: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """Return the three columns before position `base` [n], [n, 3, C], of slots `rows` [n]."""
    position = base.long()[:, None] + torch.arange(-HISTORY, 0, device=window.device)
    found = window[rows[:, None], position % window.shape[1]]
    return torch.where((position >= 0)[..., None], found, 0.0)


def convolve_round(
    mixed: torch.Tensor,
    weight: torch.Tensor,
    window: torch.Tensor,
    slots: torch.Tensor,
    columns: torch.Tensor,
    base: torch.Tensor,
    out: torch.Tensor,
) -> torch.Tensor:
    """Define `causal_conv_round`; idle lanes are left out by a selection that synchronises."""
    width = mixed.shape[1]
    out.zero_()
    active = torch.nonzero(columns > 0).flatten()
    if active.numel() == 0:
        return out
    rows, begin, fresh = slots[active].long(), base[active].long(), mixed[active]
    offsets = torch.arange(width, device=mixed.device)
    real = offsets < columns[active, None]
    extended = torch.cat((gather_history(window, rows, begin), fresh), dim=1)
    result = convolve(extended, weight)
    out[active] = torch.where(real[..., None], result, 0.0).to(out.dtype)
    index = (begin[:, None] + offsets) % window.shape[1]
    stored = window[rows[:, None], index]
    window[rows[:, None], index] = torch.where(real[..., None], fresh, stored)
    return out


def convolve_prefill(
    mixed: torch.Tensor,
    weight: torch.Tensor,
    window: torch.Tensor,
    slots: torch.Tensor,
    base: torch.Tensor,
    out: torch.Tensor,
) -> torch.Tensor:
    """Define `causal_conv_prefill`."""
    rows = slots.long()
    extended = torch.cat((gather_history(window, rows, base), mixed), dim=1)
    out.copy_(convolve(extended, weight))
    count = mixed.shape[1]
    position = base.long() + count + torch.arange(-HISTORY, 0, device=window.device)
    # Those before position 0 land in places that are written before they are read.
    window[rows[:, None], position % window.shape[1]] = extended[:, -HISTORY:]
    return out
