# pyright: reportMissingImports=false
"""Muon: momentum, orthogonalised, for the two-dimensional weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Newton-Schulz coefficients of the method's author: fast towards singular values near one.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
# One kernel for many tensors; not part of the typed interface of torch.
BATCHED: Any = torch


class Muon:
    """Matrices are grouped by shape, so that the orthogonalisation runs batched."""

    def __init__(
        self, parameters: list[Tensor], rate: float, decay: float = 0.05, momentum: float = 0.95
    ) -> None:
        self.rate, self.decay, self.momentum = rate, decay, momentum
        self.groups: dict[tuple[int, ...], list[Tensor]] = {}
        for parameter in parameters:
            self.groups.setdefault(tuple(parameter.shape), []).append(parameter)
        self.averages = {
            shape: torch.zeros(len(group), *shape, device=group[0].device)
            for shape, group in self.groups.items()
        }

    @torch.no_grad()
    def step(self, scale: float, dtype: torch.dtype) -> None:
        """Update with `scale` times the learning rate, orthogonalising in `dtype`."""
        rate = self.rate * scale
        for shape, group in self.groups.items():
            gradient = torch.stack([p.grad for p in group if p.grad is not None])
            average = self.averages[shape]
            average.lerp_(gradient, 1 - self.momentum)
            update = orthogonalise(gradient.lerp(average, self.momentum), dtype)
            BATCHED._foreach_mul_(group, 1 - rate * self.decay)
            scaled = -rate * max(1, shape[0] / shape[1]) ** 0.5
            BATCHED._foreach_add_(group, list(update.unbind(0)), alpha=scaled)


def orthogonalise(x: Tensor, dtype: torch.dtype) -> Tensor:
    """[n, rows, columns] -> matrices of the same singular vectors, values near one."""
    tall = x.shape[1] > x.shape[2]
    x = (x.transpose(1, 2) if tall else x).to(dtype)
    x = x / (x.float().norm(dim=(1, 2), keepdim=True) + 1e-7).to(dtype)
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        square = x @ x.transpose(1, 2)
        inner = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, inner, x, beta=a)
    return (x.transpose(1, 2) if tall else x).float()
