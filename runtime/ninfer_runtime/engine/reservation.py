"""All memory of the device at once, at the start, for torch's allocator to hand out.

The allocator keeps what it once got from the driver. One segment as large as the budget, given
back at once, is cut into weights, state and whatever requests need for a moment, and closes up
again behind them. Nothing that comes later makes the allocator ask the driver (MEM-19).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ninfer_runtime.weights.preflight import MemoryPlan

# Tensors up to this size share segments of torch's allocator, apart from larger ones.
SMALL_BYTES = 1 << 20


def reserve_memory(device: torch.device, plan: MemoryPlan, weights: Iterable[int]) -> None:
    """Take the planned bytes from the driver, except those of graphs, which have a pool of their
    own, and of libraries. `weights` are the bytes of every tensor of the weights.

    torch.OutOfMemoryError when they are not there.
    """
    _start_libraries(device)
    small = sum(size for size in weights if size <= SMALL_BYTES)
    others = plan.budget.graphs + plan.budget.libraries + plan.costs.small
    torch.empty(max(plan.budget.total - others - small, 1), dtype=torch.uint8, device=device)
    _reserve_small(device, small)


def reserve_spare(device: torch.device, plan: MemoryPlan) -> None:
    """Take what is planned for small tensors that come and go. The last thing of a start: captures
    give segments back that are not in use."""
    _reserve_small(device, plan.costs.small)


def _reserve_small(device: torch.device, size: int) -> None:
    """Have at least `size` bytes ready in segments of small tensors."""
    count = -(-size // SMALL_BYTES)
    held = [torch.empty(SMALL_BYTES, dtype=torch.uint8, device=device) for _ in range(count)]
    del held


def _start_libraries(device: torch.device) -> None:
    """Let the library of matrix products take its workspace first: it keeps it for ever."""
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.zeros(32, 32, dtype=dtype, device=device)
        torch.mm(x, x)
    torch.cuda.synchronize(device)
