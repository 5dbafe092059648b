"""How the work of one attention launch is cut: row blocks, key splits, workspace. N-28."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.launch import ceil_div

# Query rows (columns x heads of a group) of one program: one tile for every round, so that a row
# gets the same bits whatever the number of lanes and columns (N-5), a larger one for prefill.
ROUND_ROWS = 32
PREFILL_ROWS = 64
MOST_ROUND_COLUMNS = 16
MOST_SPLITS = 64


@dataclass(frozen=True)
class Machine:
    """What the plan wants to know of a GPU: multiprocessors, shared memory of one program."""

    processors: int
    shared_bytes: int


def machine_of(device: torch.device) -> Machine:
    """Return the figures of a CUDA device; small ones for the interpreter, so that it splits."""
    if device.type != "cuda":
        return Machine(processors=4, shared_bytes=0)
    found = torch.cuda.get_device_properties(device)
    return Machine(found.multi_processor_count, found.shared_memory_per_block_optin)


@dataclass(frozen=True)
class AttentionPlan:
    """Shapes of one launch; depends on sizes only, never on lengths, so that it can be captured.

    `rows` query rows a program, `row_blocks` of them per (lane, kv head), keys cut into at most
    `splits` parts; `workspace` fp32 numbers hold the partial results (0 for one split).
    """

    rows: int
    row_blocks: int
    splits: int
    workspace: int


def plan_attention(
    lanes: int,
    columns: int,
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    max_pages: int,
    processors: int,
) -> AttentionPlan:
    """Return the plan for q [lanes, columns, q_heads, head_dim] and `max_pages` pages a lane.

    `processors` is the number of multiprocessors of the GPU; keys are split until about two
    programs stand ready for each. In rounds (up to 16 columns) the number of splits is that of a
    single lane and column, whatever the lanes and columns.
    """
    packed = columns * (q_heads // kv_heads)
    in_round = columns <= MOST_ROUND_COLUMNS
    rows = ROUND_ROWS if in_round else PREFILL_ROWS
    row_blocks = ceil_div(packed, rows)
    beside = 1 if in_round else lanes * row_blocks
    wanted = ceil_div(2 * processors, kv_heads * beside)
    splits = max(1, min(wanted, max_pages, MOST_SPLITS))
    parts = splits * lanes * columns * q_heads if splits > 1 else 0
    return AttentionPlan(rows, row_blocks, splits, parts * (head_dim + 2))
