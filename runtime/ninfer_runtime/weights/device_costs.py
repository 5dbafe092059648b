"""What a GPU's driver and libraries take beside tensors: figures that are measured, not derived.

`scripts/gpu_check.py --only engine` prints what they are on a machine beside what is assumed here.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class DeviceCosts:
    """Bytes. `libraries`: kernels as they are loaded, and what the driver keeps for them.
    `products`: workspace of the library of matrix products, for each stream it is used on. `graph`
    and `graph_layer`: one captured round, and each of its layers. `pool_small`: what captured
    rounds hold in tensors up to 1 MiB. `margin`: what is added to the workspace for small tensors
    and for memory between tensors; `small` of it is for tensors up to 1 MiB."""

    libraries: int
    products: int
    graph: int
    graph_layer: int
    pool_small: int
    margin: int
    small: int


MEASURED = DeviceCosts(
    libraries=160 * MIB, products=32 * MIB, graph=MIB // 2, graph_layer=MIB // 16,
    pool_small=16 * MIB, margin=64 * MIB, small=32 * MIB,
)  # fmt: skip
