# pyright: reportMissingImports=false
"""One optimisation step of the demo checkpoint: weighted losses, two optimisers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from fast_forward import FastForward
from muon import Muon
from torch import Tensor
from training_data import Batch

# Weights of the mean losses of code, chat and vision rows; of the later MTP steps.
GROUP_WEIGHTS = (0.6, 0.35, 0.25)
STEP_WEIGHTS = (1.0, 0.7, 0.5)


class Losses(NamedTuple):
    total: Tensor
    shown: list[Tensor]  # code, chat, vision, then one of each MTP step on code


def compute_losses(
    fast: FastForward,
    batch: Batch,
    features: Tensor,
    rows: tuple[int, ...],
    mtp: tuple[int, float],
) -> Losses:
    """`features` are the merged patches of all images; `mtp` is (steps, weight)."""
    embedded = insert_features(fast.embed(batch.ids), batch.feature, features)
    found = fast.losses(embedded, batch.positions, batch.ids, mtp[0])
    weights = torch.zeros(batch.ids.shape, device=batch.ids.device)
    bounds = [sum(rows[:k]) for k in range(len(rows) + 1)]
    parts = [slice(*pair) for pair in pairwise(bounds)]
    for part, share in zip(parts, GROUP_WEIGHTS, strict=True):
        mask = batch.mask[part].float()
        weights[part] = mask * (share / mask.sum().clamp(min=1))
    total, shown = torch.zeros((), device=batch.ids.device), []
    for step, loss in enumerate(found):
        ahead = torch.roll(weights, -1 - step, 1)
        ahead[:, -1 - step :] = 0
        weighted = loss * ahead
        if step == 0:
            shown += [
                weighted[part].sum().detach() / share
                for part, share in zip(parts, GROUP_WEIGHTS, strict=True)
            ]
            total = weighted.sum()
        else:
            total = total + weighted.sum() * (mtp[1] * STEP_WEIGHTS[step - 1])
            shown.append(weighted[parts[0]].sum().detach() / GROUP_WEIGHTS[0])
    return Losses(total, shown)


def insert_features(embedded: Tensor, feature: Tensor, merged: Tensor) -> Tensor:
    """Put image features into the last rows of `embedded` where `feature` is not -1."""
    flat = merged.reshape(-1, merged.shape[-1])
    first = len(embedded) - len(feature)
    per_row = len(flat) // len(feature)
    rows = torch.arange(len(feature), device=feature.device)[:, None]
    index = feature.clamp(min=0) + rows * per_row
    inserted = F.embedding(index, flat).to(embedded.dtype)
    last = torch.where((feature >= 0)[..., None], inserted, embedded[first:])
    return torch.cat([embedded[:first], last], 0)


class Optimiser:
    """Muon for the matrices inside layers, AdamW for everything else."""

    def __init__(self, model: Any, mtp: Any, muon_rate: float, adam_rate: float) -> None:
        named = [*model.named_parameters(), *mtp.named_parameters()]
        self.parameters = [parameter for _, parameter in named]
        matrices = [p for name, p in named if is_layer_matrix(name, p)]
        others = [(name, p) for name, p in named if not is_layer_matrix(name, p)]
        tables = [p for name, p in others if is_table(name, p)]
        rest = [p for name, p in others if not is_table(name, p)]
        self.muon = Muon(matrices, muon_rate)
        groups: list[dict[str, Any]] = [
            {"params": tables, "lr": adam_rate, "weight_decay": 0.01},
            {"params": rest, "lr": adam_rate * 0.7, "weight_decay": 0.0},
        ]
        fused = self.parameters[0].is_cuda
        self.adam = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-9, fused=fused)
        self.rates = [group["lr"] for group in self.adam.param_groups]

    def step(self, scale: float, dtype: torch.dtype) -> None:
        for group, rate in zip(self.adam.param_groups, self.rates, strict=True):
            group["lr"] = rate * scale
        self.muon.step(scale, dtype)
        self.adam.step()
        self.clear()

    def clear(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


def is_layer_matrix(name: str, parameter: Tensor) -> bool:
    inside = any(part in name for part in ("layers.", "blocks.", "merger")) or name == "fc.weight"
    gates = "in_proj_a" in name or "in_proj_b" in name
    return parameter.ndim == 2 and inside and not gates


def is_table(name: str, parameter: Tensor) -> bool:
    return parameter.ndim >= 2 and ("embed" in name or "lm_head" in name)
