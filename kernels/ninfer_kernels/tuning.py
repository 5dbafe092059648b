"""Launch options that were measured to beat a kernel's default, by architecture and shape.

A kernel module that has any states them in a table `TUNED` beside its COMPILATIONS, which hold
one more Compilation for every entry, of its own architecture only. An entry names a measurement;
what nobody measured runs with the default. A shape of fewer sizes stands for all that begin so.
An entry may depend on the matrix, never on the rows of x: those keep their bits whatever stands
beside them (rule N-5).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache

import torch


@dataclass(frozen=True)
class Tuning:
    """Warps of one program, depth of its pipeline, and a limit on registers (None: no limit)."""

    num_warps: int
    num_stages: int
    max_registers: int | None = None


@dataclass(frozen=True)
class Place:
    """Where a tuning holds: SM number, such as 90, and the sizes of the launch."""

    architecture: int
    shape: tuple[Hashable, ...]


def find_tuning(
    table: Mapping[Place, Tuning],
    device: torch.device,
    shape: tuple[Hashable, ...],
    default: Tuning,
) -> Tuning:
    """Return the tuning of this device and the longest beginning of `shape`, or `default`."""
    if not table or device.type != "cuda":
        return default
    architecture = _architecture(device.index)
    for count in range(len(shape), 0, -1):
        found = table.get(Place(architecture, shape[:count]))
        if found is not None:
            return found
    return default


@cache
def _architecture(index: int | None) -> int:
    major, minor = torch.cuda.get_device_capability(index)
    return major * 10 + minor
