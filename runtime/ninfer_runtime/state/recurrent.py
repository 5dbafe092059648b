"""Recurrent state of the Gated DeltaNet layers: one slot for a sequence."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_formats.inventories.geometry import TextGeometry
from ninfer_kernels.gated_delta import ReplayRecords, allocate_records, fold_records


@dataclass(frozen=True)
class RecurrentLayer:
    """State of one layer over all slots.

    `state` fp32 [S, nv, Dv, Dk]; `window` [S, 3 + 2 W, C] is a ring of raw projected columns, by
    token position; `records` are the updates of the newest columns that are not folded in yet.
    """

    state: torch.Tensor
    window: torch.Tensor
    records: ReplayRecords

    @property
    def planes(self) -> tuple[torch.Tensor, ...]:
        """Every tensor, slot first."""
        records = self.records
        return self.state, self.window, records.key, records.update, records.decay


@dataclass(frozen=True)
class RecurrentState:
    """Every layer's state. `accepted` int32 [S] counts the records of a slot that the written
    state lacks, `settled` int32 [S] those of them that the last round did not leave."""

    layers: tuple[RecurrentLayer, ...]
    accepted: torch.Tensor
    settled: torch.Tensor

    @property
    def planes(self) -> tuple[torch.Tensor, ...]:
        layers = (plane for layer in self.layers for plane in layer.planes)
        return (*layers, self.accepted, self.settled)

    @property
    def stored_planes(self) -> tuple[torch.Tensor, ...]:
        """What is left of a slot when its records are folded in: states and windows."""
        return tuple(plane for layer in self.layers for plane in (layer.state, layer.window))

    def fold(self, slot: int, tokens: int) -> None:
        """Fold the records of a slot that stand for the newest of its `tokens` tokens."""
        device = self.accepted.device
        slots = torch.tensor([slot], dtype=torch.int32, device=device)
        base = torch.tensor([tokens], dtype=torch.int32, device=device)
        for layer in self.layers:
            fold_records(layer.state, layer.records, slots, base, self.accepted)
        self.accepted[slot] = 0
        self.settled[slot] = 0

    def reset(self, slot: int) -> None:
        """Empty a slot: the state before the first token. Poisoned values do not survive it."""
        for plane in self.planes:
            plane[slot].zero_()

    def copy(self, source: int, target: int) -> None:
        """Copy slot `source` over slot `target`."""
        for plane in self.planes:
            plane[target].copy_(plane[source])


def allocate_recurrent(
    text: TextGeometry,
    layers: int,
    slots: int,
    width: int,
    dtype: torch.dtype,
    device: torch.device,
) -> RecurrentState:
    """Return empty state of `layers` layers and `slots` slots for rounds of up to `width`."""
    channels = 2 * text.linear_key_size + text.linear_value_size
    heads, key_dim = text.linear_num_value_heads, text.linear_key_head_dim
    shape = (slots, heads, text.linear_value_head_dim, key_dim)
    history = text.linear_conv_kernel_dim - 1

    def allocate_layer() -> RecurrentLayer:
        return RecurrentLayer(
            torch.zeros(shape, dtype=torch.float32, device=device),
            torch.zeros(slots, history + 2 * width, channels, dtype=dtype, device=device),
            allocate_records(
                slots,
                width,
                key_heads=text.linear_num_key_heads,
                value_heads=heads,
                key_dim=key_dim,
                value_dim=text.linear_value_head_dim,
                device=device,
            ),
        )

    return RecurrentState(
        tuple(allocate_layer() for _ in range(layers)),
        torch.zeros(slots, dtype=torch.int32, device=device),
        torch.zeros(slots, dtype=torch.int32, device=device),
    )
