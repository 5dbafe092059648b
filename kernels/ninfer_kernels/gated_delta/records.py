"""Replay records: what a round leaves behind instead of a state per column."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class ReplayRecords:
    """One rank-1 update per column and head, of the newest columns of every slot.

    key fp32 [S, R, nk, Dk]: normalised keys; update fp32 [S, R, nv, Dv]: u = beta (v - S k);
    decay fp32 [S, R, nv]: exp(g). The record of the column at token position p lies at index
    p mod R. R is three times the widest round: while a round writes its own records, programs
    still read those of the round before it, which may yet be taken back, and of the one before
    that, which are being written into the state.
    """

    key: torch.Tensor
    update: torch.Tensor
    decay: torch.Tensor

    @property
    def length(self) -> int:
        return self.key.shape[1]


def allocate_records(
    slots: int,
    max_width: int,
    *,
    key_heads: int,
    value_heads: int,
    key_dim: int = 128,
    value_dim: int = 128,
    device: torch.device | str = "cpu",
) -> ReplayRecords:
    """Return zeroed records of one layer for rounds of at most `max_width` columns."""
    length = 3 * max_width

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(slots, length, *shape, dtype=torch.float32, device=device)

    return ReplayRecords(
        key=zeros(key_heads, key_dim),
        update=zeros(value_heads, value_dim),
        decay=zeros(value_heads),
    )
