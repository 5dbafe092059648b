"""What fits into memory: pages to fill it with, and the longest context for each KV type.

Specification: `specs/memory.md` (rules MEM-30 to MEM-32). Needs neither torch nor a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_runtime.weights.budget import PAGE_TOKENS, Shape, fit, make_budget


def fill_pages(
    geometry: ModelGeometry, shape: Shape, weights: Mapping[str, int], available: int
) -> int:
    """Return the most key/value pages that fit `available` bytes, from those of one sequence of
    `max_context` tokens to those of one for each lane; those of one if not even they fit (MEM-30).
    """
    least = replace(shape, pages=None).page_count
    low, high = least, least * shape.lanes
    while low < high:
        middle = (low + high + 1) // 2
        fits = make_budget(geometry, replace(shape, pages=middle), weights).total <= available
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def longest_contexts(
    geometry: ModelGeometry,
    shape: Shape,
    weights: Mapping[str, int],
    available: int,
    kinds: Sequence[str],
) -> dict[str, int]:
    """Return KV type -> tokens of the longest context that fits with the lanes of `shape` and no
    shared pages, a multiple of 64, at most what the model has; 0: none (MEM-31)."""
    most = geometry.text.max_position_embeddings // PAGE_TOKENS * PAGE_TOKENS
    return {
        kind: min(most, fit(geometry, replace(shape, kv_kind=kind), weights, available).max_context)
        for kind in kinds
    }


def vision_workspace(geometry: ModelGeometry, shape: Shape, weights: Mapping[str, int]) -> int:
    """Return the bytes of the workspace that only images need (MEM-32)."""
    text = replace(shape, vision=False)
    with_tower = make_budget(geometry, shape, weights).workspace
    return with_tower - make_budget(geometry, text, weights).workspace
