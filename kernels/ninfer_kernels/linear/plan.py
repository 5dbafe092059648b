"""How skinny products are cut into programs; arithmetic on sizes only."""

from __future__ import annotations

from dataclasses import dataclass

from ninfer_kernels.launch import ceil_div

# Rows of x in a skinny product: one tile of the matrix unit, whatever the number of real rows,
# so that a row's bits do not depend on its company (rule N-5). With more rows a matrix is decoded
# into a buffer once and multiplied there.
MAX_SKINNY = 16

# Rows of the matrix in one program.
BLOCK_ROWS = 64

# Values of K in one step: integer rows are padded to it, so whole groups may always be taken.
STEP_K = 128

# Enough programs for the largest cards; the same for all, so that splits do not depend on them.
_WANTED_PROGRAMS = 256
_MAX_SPLITS = 8
_LEAST_STEPS = 4


@dataclass(frozen=True)
class SkinnyPlan:
    """Programs along N, and splits of `split_k` values along K."""

    blocks: int
    splits: int
    split_k: int


def plan_skinny(rows: int, columns: int) -> SkinnyPlan:
    """Return the cut of a product with a matrix [rows, columns]."""
    blocks = ceil_div(rows, BLOCK_ROWS)
    steps = ceil_div(columns, STEP_K)
    wanted = min(_MAX_SPLITS, ceil_div(_WANTED_PROGRAMS, blocks), max(1, steps // _LEAST_STEPS))
    split_steps = ceil_div(steps, wanted)
    return SkinnyPlan(blocks, ceil_div(steps, split_steps), split_steps * STEP_K)
