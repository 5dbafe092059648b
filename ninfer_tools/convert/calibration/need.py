"""What a calibration needs before it starts: memory, and work for the progress bar (V-107)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from ninfer_formats.inventories.geometry import ModelGeometry, TextGeometry
from ninfer_formats.inventories.parameters import Parameter, list_parameters
from ninfer_tools.convert.calibration.record import RUN
from ninfer_tools.convert.calibration.text import CHUNK_TOKENS
from ninfer_tools.convert.packing import BLOCK_VALUES

# Interpreter, torch and transformers.
PROGRAM_BYTES = 512 << 20


def estimate_bytes(geometry: ModelGeometry, tokens: int) -> int:
    """Return about how many bytes a calibration holds at most at a time.

    On a GPU the device holds them; the main memory holds one layer's weights and the program.
    """
    weights = max(_count_layers(geometry).values())
    t = geometry.text
    states = 4 * t.hidden_size * tokens
    return PROGRAM_BYTES + weights + states + _chunk_bytes(t) + 4 * 4 * BLOCK_VALUES


def count_run_bytes(geometry: ModelGeometry) -> int:
    """Return the float32 bytes of all layers that are run."""
    return sum(_count_layers(geometry).values())


def count_steps(group: Iterable[Parameter], chunks: int) -> Iterator[int]:
    """Yield for every chunk its share of a layer's bytes, in whole bytes that sum to all."""
    total = sum(4 * math.prod(p.shape) for p in group)
    for number in range(chunks):
        yield total * (number + 1) // chunks - total * number // chunks


def _count_layers(geometry: ModelGeometry) -> dict[tuple[str, int], int]:
    components = [name for name in geometry.components if name in RUN]
    found: dict[tuple[str, int], int] = defaultdict(int)
    for p in list_parameters(geometry, components):
        if p.layer is not None:
            found[p.residency, p.layer] += 4 * math.prod(p.shape)
    return found


def _chunk_bytes(t: TextGeometry) -> int:
    """Return the float32 bytes of what one chunk computes, counted generously."""
    width = t.intermediate_size or max(
        t.shared_expert_intermediate_size or 0,
        (t.moe_intermediate_size or 0) * (t.num_experts_per_tok or 0),
    )
    mixer = max(
        6 * t.query_size + CHUNK_TOKENS * t.num_attention_heads * 2,
        10 * t.linear_value_size + 6 * t.linear_key_size,
    )
    return 4 * CHUNK_TOKENS * (6 * t.hidden_size + 4 * width + mixer)
