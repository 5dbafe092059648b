"""Peak anonymous memory of a conversion on the CPU, derived from its plan (rule V-147)."""

from __future__ import annotations

import math
import os

from ninfer_formats.inventories.packing import Parent
from ninfer_tools.convert.devices import CPU_WAITING_BYTES
from ninfer_tools.convert.packing import ParentRows
from ninfer_tools.convert.plan import ConversionPlan
from ninfer_tools.convert.sources.quantization import DIRECT

# The interpreter with numpy and torch's CPU build, before it does anything.
PROGRAM_BYTES = 192 << 20
# Parsed tokenizers and their checks, per byte of a frontend file.
_PARSED_PER_BYTE = 8
# Objects that stand for a parameter, its source and its record, per parameter; and the directory
# with its JSON and the steps on the way to it.
_PARAMETER_BYTES = 3072
_DIRECTORY_COPIES = 6
# Blocks at a time: two read ahead, one in the encoder, one on its way to the error figures, and
# their encoded rows.
_BLOCKS = 5
# Buffers of one encoding thread: the search's candidates, more than any other format needs.
_THREADS, _TILE_BYTES = 4, 16 << 20
# Where values are rounded, 128 rows are decoded again for the error figures.
_FIGURE_BYTES = 32 << 20


def peak_memory(plan: ConversionPlan) -> int:
    """Return an upper estimate of the anonymous memory (bytes) of a conversion on the CPU.

    Pages of mapped source files are not in it: the system takes them back when it needs them.
    """
    frontend = sum(len(data) for id, data in plan.literals.items() if _is_resource(id))
    directory = sum(len(file.header) for file in plan.written.files)
    threads = min(_THREADS, os.cpu_count() or 1)
    stored = [parent for id, parent in plan.parents.items() if id not in plan.literals]
    block = max((_block_bytes(plan, parent) for parent in stored), default=0)
    return (
        PROGRAM_BYTES
        + _PARSED_PER_BYTE * frontend
        + _DIRECTORY_COPIES * directory
        + _PARAMETER_BYTES * len(plan.assigned)
        + _BLOCKS * block
        + CPU_WAITING_BYTES
        + threads * _TILE_BYTES
        + _FIGURE_BYTES
    )


def _is_resource(id: str) -> bool:
    return id.startswith(("resource/", "frontend/"))


def _block_bytes(plan: ConversionPlan, parent: Parent) -> int:
    """Return the bytes of one block of rows: bfloat16 words stay words, the rest is float32."""
    members = [plan.sources[r.parameter] for r in parent.ranges]
    _, rows = next(ParentRows(parent, members).blocks())
    words = all(item.kind == DIRECT and item.dtype == "BF16" for item in members)
    return rows * math.prod(parent.shape[1:]) * (2 if words else 4)
