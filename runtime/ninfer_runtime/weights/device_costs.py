"""What a GPU's driver and libraries take beside tensors: figures that are measured, not derived.

`scripts/gpu_check.py --only engine` prints what they are on a machine beside what is assumed here.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class DeviceCosts:
    """Bytes. `libraries`: kernels as they are loaded, workspaces of matrix products. `graph` and
    `graph_layer`: one captured round, and each of its layers. `margin`: what is added to the
    workspace for small tensors and for memory between tensors; `small` of it is for tensors up to
    1 MiB."""

    libraries: int
    graph: int
    graph_layer: int
    margin: int
    small: int


MEASURED = DeviceCosts(
    libraries=128 * MIB, graph=2 * MIB, graph_layer=MIB // 8, margin=64 * MIB, small=32 * MIB
)
