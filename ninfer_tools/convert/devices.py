"""What encodes, and how much is read ahead for it and written behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ninfer_tools.convert.packing import BLOCK_VALUES, ParentRows

if TYPE_CHECKING:
    import torch

    from ninfer_tools.convert.encoders import TileWorkers

# Encoded bytes that wait to be written behind an encoder on the CPU.
CPU_WAITING_BYTES = 1 << 26
_CAST = "cast"
# A fault maps the pages around it, and starts to read what follows.
_FAULT_BYTES = 1 << 16


class Block(NamedTuple):
    """Rows as they were read, and the same rows where the encoder gets them fastest."""

    values: NDArray[Any]
    staged: NDArray[Any] | torch.Tensor


@dataclass(frozen=True)
class Device:
    """Encoding on one device.

    `readers` threads read blocks of about `block_values` values ahead; encoded bytes that wait
    to be written are at most `waiting_bytes`.
    """

    workers: TileWorkers
    block_values: int
    readers: int
    waiting_bytes: int

    def read(self, rows: ParentRows, method: str, begin: int, end: int) -> Block:
        """Return rows of a parent, in memory; NumericError when a cast would let NaN pass."""
        if method == _CAST:
            rows.check(begin, end)
        values = rows.read(begin, end)
        if self.workers.device.type == "cuda" and method != _CAST:
            return Block(values, _pin(values))
        return Block(values, _fetch_pages(values))


def choose_device(name: str) -> Device:
    """Return how to encode on `cpu`, `cuda` or `cuda:N`."""
    from ninfer_tools.convert.encoders import TileWorkers

    workers = TileWorkers(name)
    if workers.device.type == "cuda":
        # Blocks fill the GPU; a reader is bound by the memory of one core.
        return Device(workers, block_values=1 << 25, readers=3, waiting_bytes=1 << 29)
    return Device(workers, block_values=BLOCK_VALUES, readers=1, waiting_bytes=CPU_WAITING_BYTES)


def _fetch_pages(block: NDArray[Any]) -> NDArray[Any]:
    # Rows of a mapped file come from the disk here and not while they are encoded.
    block.reshape(-1).view(np.uint8)[::_FAULT_BYTES].max(initial=0)
    return block


def _pin(block: NDArray[Any]) -> torch.Tensor:
    """Return a copy that a CUDA device fetches at full speed; torch keeps its memory in turn."""
    import torch

    kind = {"uint16": torch.uint16, "float32": torch.float32}[block.dtype.name]
    pinned = torch.empty(block.shape, dtype=kind, pin_memory=True)
    np.copyto(pinned.numpy(), block)
    return pinned
