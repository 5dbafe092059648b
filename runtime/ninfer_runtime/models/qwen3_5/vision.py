"""The vision tower: patches in, rows that replace media tokens' embeddings out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ninfer_formats.inventories.geometry import VisionGeometry
from ninfer_kernels.gelu import gelu
from ninfer_kernels.layernorm import layernorm
from ninfer_kernels.linear import Matrix, linear, linear_group
from ninfer_kernels.rope import Rotation, rotate, vision_rotation
from ninfer_kernels.vision_attention import vision_attention
from ninfer_runtime.models.qwen3_5.patch_grid import (
    PatchGrid,
    frame_boundaries,
    interpolate_positions,
    rotary_places,
)
from ninfer_runtime.weights.source import WeightSource
from ninfer_runtime.weights.workspace import VISION_PATCHES, VISION_ROWS

_EPS = 1e-6


@dataclass(frozen=True)
class Affine:
    """Weight and bias of a layer norm."""

    weight: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True)
class Projection:
    """A matrix with a bias."""

    matrix: Matrix
    bias: torch.Tensor


@dataclass(frozen=True)
class BlockWeights:
    """`qkv`: rows query | key | value."""

    norm1: Affine
    qkv: tuple[Matrix, ...]
    qkv_bias: torch.Tensor
    output: Projection
    norm2: Affine
    fc1: Projection
    fc2: Projection


@dataclass(frozen=True)
class VisionTower:
    """`positions` [side * side, D] is the learned table."""

    geometry: VisionGeometry
    rotation: Rotation
    patch: Projection
    positions: torch.Tensor
    blocks: tuple[BlockWeights, ...]
    merger_norm: Affine
    merger_fc1: Projection
    merger_fc2: Projection


def load_vision(source: WeightSource, geometry: VisionGeometry) -> VisionTower:
    patch = "vision/patch_embedding"
    return VisionTower(
        geometry,
        vision_rotation(geometry.hidden_size // geometry.num_heads, device=source.device),
        Projection(source.matrix(patch), source.vector(f"{patch}_bias")),
        source.vector("vision/position_embedding"),
        tuple(_load_block(source, f"vision/layers/{index}") for index in range(geometry.depth)),
        Affine(
            source.vector("vision/merger/norm_weight"), source.vector("vision/merger/norm_bias")
        ),
        _load_projection(source, "vision/merger/fc1"),
        _load_projection(source, "vision/merger/fc2"),
    )


def _load_block(source: WeightSource, prefix: str) -> BlockWeights:
    parts = [f"{prefix}/attention/{role}" for role in ("query", "key", "value")]
    return BlockWeights(
        Affine(source.vector(f"{prefix}/norm1_weight"), source.vector(f"{prefix}/norm1_bias")),
        source.matrices(*parts),
        source.vectors(*(f"{part}_bias" for part in parts)),
        _load_projection(source, f"{prefix}/attention/output"),
        Affine(source.vector(f"{prefix}/norm2_weight"), source.vector(f"{prefix}/norm2_bias")),
        _load_projection(source, f"{prefix}/mlp/fc1"),
        _load_projection(source, f"{prefix}/mlp/fc2"),
    )


def _load_projection(source: WeightSource, name: str) -> Projection:
    return Projection(source.matrix(name), source.vector(f"{name}_bias"))


def run_vision(
    tower: VisionTower, patches: torch.Tensor, grids: Sequence[PatchGrid]
) -> torch.Tensor:
    """Return rows [patches / merge^2, H] in the tower's type, in the order of the grids.

    `patches` [patches, 1536] holds the normalised pixels of each patch: channel, frame, row,
    column. Frames do not see each other, so long videos go through in parts.
    """
    rows, begin = [], 0
    for part in cut_grids(grids):
        end = begin + sum(grid.patches for grid in part)
        rows.append(_run_part(tower, patches[begin:end], part))
        begin = end
    return torch.cat(rows)


def cut_grids(grids: Sequence[PatchGrid], most: int = VISION_PATCHES) -> Iterator[list[PatchGrid]]:
    """Yield grids with the same frames in the same order, together at most `most` patches, or one
    frame."""
    part: list[PatchGrid] = []
    room = most
    for grid in grids:
        size, left = grid.rows * grid.columns, grid.frames
        while left:
            if part and size > room:
                yield part
                part, room = [], most
            count = min(left, max(1, room // size))
            part.append(PatchGrid(count, grid.rows, grid.columns))
            room -= count * size
            left -= count
    if part:
        yield part


def _run_part(
    tower: VisionTower, patches: torch.Tensor, grids: Sequence[PatchGrid]
) -> torch.Tensor:
    merge = tower.geometry.spatial_merge_size
    device, dtype = tower.positions.device, tower.positions.dtype
    x = _project(patches.to(device, dtype), tower.patch)
    x += interpolate_positions(tower.positions, grids, merge)
    places = rotary_places(grids, merge).to(device)
    ends = frame_boundaries(grids)
    longest = max(grid.rows * grid.columns for grid in grids)
    boundaries = torch.tensor(ends, dtype=torch.int32, device=device)
    for block in tower.blocks:
        attended = _attend(tower, block, x, places, boundaries, longest)
        x += _project(attended, block.output)
        for begin in range(0, x.shape[0], VISION_ROWS):
            rows = x[begin : begin + VISION_ROWS]
            rows += _feed_forward(block, rows)
    return _merge(tower, x)


def _attend(
    tower: VisionTower,
    block: BlockWeights,
    x: torch.Tensor,
    places: torch.Tensor,
    boundaries: torch.Tensor,
    longest: int,
) -> torch.Tensor:
    tokens, width = x.shape
    heads = tower.geometry.num_heads
    qkv = linear_group(_norm(x, block.norm1), block.qkv)
    qkv += block.qkv_bias
    q, k, v = qkv.view(tokens, 3, heads, width // heads).unbind(1)
    q, k = rotate(q, k, places, tower.rotation)
    scale = (width // heads) ** -0.5
    return vision_attention(q, k, v, boundaries, scale, longest=longest).view(tokens, width)


def _feed_forward(block: BlockWeights, x: torch.Tensor) -> torch.Tensor:
    return _project(gelu(_project(_norm(x, block.norm2), block.fc1), "tanh"), block.fc2)


def _merge(tower: VisionTower, x: torch.Tensor) -> torch.Tensor:
    merged = _norm(x, tower.merger_norm).view(-1, tower.geometry.merged_size)
    return _project(gelu(_project(merged, tower.merger_fc1), "erf"), tower.merger_fc2)


def _norm(x: torch.Tensor, affine: Affine) -> torch.Tensor:
    return layernorm(x, affine.weight, affine.bias, _EPS)


def _project(x: torch.Tensor, projection: Projection) -> torch.Tensor:
    return linear(x, projection.matrix, projection.bias)
