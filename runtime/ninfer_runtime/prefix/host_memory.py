"""Memory of the host for what the device has no room for: taken once, at the start."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

MOST_SLOTS = 48
# With three of the device's four, no fewer than 16 snapshots where the limit permits.
_LEAST_SLOTS = 13
_ALIGNMENT = 256


@dataclass(frozen=True)
class HostMemory:
    """`slots` have a row for every recurrent state that fits, `pages` one for every page; planes
    as on the device. All are views of `arena`."""

    arena: torch.Tensor
    slots: tuple[torch.Tensor, ...]
    pages: tuple[torch.Tensor, ...]
    slot_count: int
    page_count: int


def allocate_host(
    slots: Sequence[torch.Tensor], pages: Sequence[torch.Tensor], limit: int, most_pages: int
) -> HostMemory:
    """Return memory of at most `limit` bytes with rows like those of the device's planes, pinned
    where these lie on a GPU. `most_pages` are the pages that one snapshot can need."""
    slot_bytes, page_bytes = _row_bytes(slots), _row_bytes(pages)
    room = limit - _ALIGNMENT * (len(slots) + len(pages))
    slot_count, page_count = split_host(room, slot_bytes, page_bytes, most_pages)
    if not slot_count:
        return HostMemory(torch.empty(0, dtype=torch.uint8), (), (), 0, 0)
    forms = [(plane, slot_count) for plane in slots] + [(plane, page_count) for plane in pages]
    sizes = [_align(_row_bytes((plane,)) * rows) for plane, rows in forms]
    arena = torch.empty(sum(sizes), dtype=torch.uint8)
    if any(plane.is_cuda for plane in (*slots, *pages)):
        _pin(arena)
    parts = arena.split(sizes)
    planes = tuple(
        part[: _row_bytes((plane,)) * rows].view(plane.dtype).view(rows, *plane.shape[1:])
        for part, (plane, rows) in zip(parts, forms, strict=True)
    )
    return HostMemory(arena, planes[: len(slots)], planes[len(slots) :], slot_count, page_count)


def split_host(room: int, slot_bytes: int, page_bytes: int, most_pages: int) -> tuple[int, int]:
    """Return how many states and how many pages share `room` bytes: half for each, but 13 states
    before any page, and no more than can be of use."""
    if room < slot_bytes + page_bytes:
        return 0, 0
    # A model may lack recurrent layers or attention layers: its rows take nothing.
    slot_bytes, page_bytes = max(slot_bytes, 1), max(page_bytes, 1)
    slots = min(MOST_SLOTS, room // 2 // slot_bytes)
    slots = max(slots, min(_LEAST_SLOTS, (room - page_bytes) // slot_bytes))
    pages = min((room - slots * slot_bytes) // page_bytes, slots * (most_pages + 1))
    return slots, pages


def _row_bytes(planes: Sequence[torch.Tensor]) -> int:
    return sum(math.prod(plane.shape[1:]) * plane.element_size() for plane in planes)


def _align(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _pin(arena: torch.Tensor) -> None:
    """Lock an arena in memory: torch's own pinned memory comes in powers of two. Where the system
    refuses, copies are right all the same, only slower."""
    runtime: Any = torch.cuda.cudart()
    address = arena.data_ptr()
    if int(runtime.cudaHostRegister(address, arena.numel(), 0)) == 0:
        weakref.finalize(arena, runtime.cudaHostUnregister, address)
