"""The columns of one forward pass, and where their sequences keep state."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Columns:
    """Columns of `lanes` sequences, `width` each; lane l's real ones are the first `counts[l]`.

    `positions` int32 [3, lanes * width] are rotary positions (time, height, width); `base` int32
    [lanes] counts the tokens before the first column; `counts` int32 [lanes], 0 for an idle lane;
    `pages` int32 [lanes, P] is the block table. `slots` int32 [lanes] name the
    recurrent slots. `prefill` columns are all committed: their state is
    written; those of a round leave records that the next round folds.
    """

    lanes: int
    width: int
    positions: torch.Tensor
    base: torch.Tensor
    counts: torch.Tensor
    pages: torch.Tensor
    slots: torch.Tensor
    prefill: bool
