"""Passes that nobody asked for: kernels are compiled and loaded before the first request comes."""

from __future__ import annotations

import torch

from ninfer_kernels.kv_codec import copy_pages
from ninfer_runtime.config import PAGE_TOKENS, Settings
from ninfer_runtime.engine.prefill import Place, run_chunk, text_positions
from ninfer_runtime.engine.request import Request
from ninfer_runtime.models.qwen3_5.model import Model, ModelState
from ninfer_runtime.models.qwen3_5.patch_grid import PatchGrid
from ninfer_runtime.models.qwen3_5.vision import run_vision

# Chunks shorter than the largest: kernels are compiled for some sizes apart.
_CHUNKS = (1, 2, 16, 37)
# Patches of a small picture.
_GRID = PatchGrid(1, 16, 16)


def warm_up(model: Model, state: ModelState, settings: Settings) -> None:
    """Run prefill chunks, the largest among them, in the first lane, and a picture through the
    tower. No lane may be taken. What they wrote to keys and values is never read (EN-6); the
    lane's state is emptied."""
    most = min(settings.prefill_chunk, settings.pages * PAGE_TOKENS, settings.max_context)
    pages = torch.arange(-(-most // PAGE_TOKENS), dtype=torch.int32, device=settings.device)
    for tokens in sorted({min(tokens, most) for tokens in _CHUNKS} | {most}):
        request = Request((0,) * (tokens + 1), 1)
        positions = text_positions(tokens + 1)
        run_chunk(model, state, request, positions, Place(0, pages[None]), 0, tokens)
    if settings.snapshots:
        _warm_up_snapshots(state, settings)
    state.decoder.recurrent.reset(0)
    if model.vision is not None:
        warm_up_vision(model, _GRID)


def _warm_up_snapshots(state: ModelState, settings: Settings) -> None:
    """Run what a snapshot takes; the page behind the pool's belongs to its slot, which is empty."""
    state.decoder.recurrent.fold(0, 0)
    source, target = (
        torch.tensor([page], dtype=torch.int32, device=settings.device)
        for page in (0, settings.pages)
    )
    for cache in state.caches:
        copy_pages(cache, source, target)


def warm_up_vision(model: Model, grid: PatchGrid) -> None:
    """Run a black picture of a size through the tower."""
    assert model.vision is not None
    patches = torch.zeros(grid.patches, model.vision.geometry.patch_values)
    run_vision(model.vision, patches, [grid])
