"""All memory of the device at once, at the start, for torch's allocator to hand out.

The allocator keeps what it once got from the driver. One segment as large as the budget, given
back at once, is cut into weights, state and whatever requests need for a moment, and closes up
again behind them. Nothing that comes later makes the allocator ask the driver (MEM-19).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import torch

from ninfer_runtime.weights.preflight import MemoryPlan

# Tensors up to this size share segments of torch's allocator, apart from larger ones.
SMALL_BYTES = 1 << 20
_SEGMENT, _UNIT = 2 << 20, 512


def reserve_memory(device: torch.device, plan: MemoryPlan, tensors: Iterable[int]) -> None:
    """Take the planned bytes from the driver, except those of graphs, which have a pool of their
    own, and of libraries. `tensors` are the bytes of everything that stays, in the order in which
    it is allocated.

    torch.OutOfMemoryError when they are not there.
    """
    start_libraries(device, plan.shape.cuda_graph)
    small = _SEGMENT * count_segments(tensors)
    others = plan.budget.graphs + plan.budget.libraries + plan.costs.small
    torch.empty(max(plan.budget.total - others - small, 1), dtype=torch.uint8, device=device)
    hold_small(device, small)


def reserve_spare(device: torch.device, plan: MemoryPlan) -> None:
    """Take what is planned for small tensors that come and go. The last thing of a start: captures
    give segments back that are not in use."""
    hold_small(device, plan.costs.small)


def hold_small(device: torch.device, size: int) -> None:
    """Have at least `size` bytes ready in segments of small tensors."""
    count = -(-size // SMALL_BYTES)
    held = [torch.empty(SMALL_BYTES, dtype=torch.uint8, device=device) for _ in range(count)]
    del held


def count_segments(tensors: Iterable[int]) -> int:
    """Return how many segments of 2 MiB hold the small ones of `tensors`, each put where the least
    room is left that suffices, as torch's allocator does."""
    rooms: list[int] = []
    count = 0
    for size in tensors:
        if not 0 < size <= SMALL_BYTES:
            continue
        taken = -(-size // _UNIT) * _UNIT
        place = bisect_left(rooms, taken)
        if place == len(rooms):
            count += 1
            room = _SEGMENT
        else:
            room = rooms.pop(place)
        left = room - taken
        if left:
            rooms.insert(bisect_left(rooms, left), left)
    return count


def start_libraries(device: torch.device, captured: bool) -> None:
    """Let the library of matrix products take its workspaces first, of the stream of all work and
    of that of captures: it keeps them for ever, and in the graphs' pool they would keep that."""
    _multiply(device)
    if captured:
        with torch.cuda.stream(capture_stream()):
            _multiply(device)
    torch.cuda.synchronize(device)


def capture_stream() -> torch.cuda.Stream:
    """Return the stream on which torch captures graphs; it is the same one every time."""
    stream = torch.cuda.graph(torch.cuda.CUDAGraph()).capture_stream
    assert stream is not None
    return stream


def _multiply(device: torch.device) -> None:
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.zeros(32, 32, dtype=dtype, device=device)
        torch.mm(x, x)
