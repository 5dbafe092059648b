"""Routed experts that show what each of them is multiplied with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

# (expert, its input [n, hidden], the product [n, width] that its down projection reads).
Observe = Callable[[int, torch.Tensor, torch.Tensor], None]


class ObservedExperts(nn.Module):
    """The experts of one layer, in the call and the parameter names of transformers' own.

    gate_up_proj [E, 2 * width, hidden], gate rows first; down_proj [E, hidden, width].
    """

    def __init__(self, gate_up: torch.Size, down: torch.Size) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(gate_up, device="meta"))
        self.down_proj = nn.Parameter(torch.empty(down, device="meta"))
        self.observe: Observe | None = None

    def forward(self, states: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor) -> Any:
        """Return sum over the chosen experts of share * expert(state).

        states [tokens, hidden]; chosen and shares [tokens, experts per token].
        """
        out = torch.zeros_like(states)
        for expert in torch.unique(chosen).tolist():
            tokens, slots = torch.where(chosen == expert)
            inputs = states[tokens]
            gate, up = functional.linear(inputs, self.gate_up_proj[expert]).chunk(2, -1)
            product = functional.silu(gate) * up
            if self.observe is not None:
                self.observe(expert, inputs, product)
            part = functional.linear(product, self.down_proj[expert])
            out.index_add_(0, tokens, part * shares[tokens, slots, None])
        return out
