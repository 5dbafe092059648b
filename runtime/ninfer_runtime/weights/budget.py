"""Device memory an engine needs, before any of it is taken: arithmetic on sizes only.

Specification: `specs/memory.md` (rules MEM-1..). Needs neither torch nor a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ninfer_formats import numeric_formats as nf
from ninfer_formats.inventories.geometry import (
    FULL_ATTENTION,
    ModelGeometry,
    TextGeometry,
)
from ninfer_formats.parameters import ParameterPart
from ninfer_formats.reader import Artifact

PAGE_TOKENS = 64
MAX_LANES = 8

# Words of one lane beside its columns, pages and vocabulary: 6 counters, 16 stop ids, 512 biases
# with their ids, 4 sampling parameters and 3 penalties (MEM-5).
_LANE_WORDS = 6 + 16 + 2 * 512 + 4 + 3

# Rounds whose columns and records a slot holds at once.
_WINDOW_ROUNDS, _RECORD_ROUNDS = 2, 3

_VALUE_BYTES = {"fp32": 4, "bf16": 2, "fp8": 1, "int8": 1}
_SCALED_KINDS = ("fp8", "int8")
_FLOAT_VECTORS = ("a_log", "dt_bias")
_DECODE_BUFFER = 512 << 20
_MIB = 1 << 20


@dataclass(frozen=True)
class Shape:
    """What decides the size of an engine.

    `value_bytes` is the size of the compute type, `decoded` says that matrices are kept in it;
    `width` counts the columns of a round, drafts and one. `pages` None: as many as one sequence
    of `max_context` tokens needs.
    """

    value_bytes: int
    max_context: int
    lanes: int
    width: int
    prefill_chunk: int
    kv_kind: str
    pages: int | None = None
    decoded: bool = False
    proposal: bool = False
    vision: bool = False
    cuda_graph: bool = True

    @property
    def mtp(self) -> bool:
        return self.width > 1

    @property
    def page_count(self) -> int:
        least = -(-self.max_context // PAGE_TOKENS)
        return least if self.pages is None else self.pages


@dataclass(frozen=True)
class Budget:
    """Bytes of device memory by use; `weights` by component."""

    weights: Mapping[str, int]
    kv_pages: int
    recurrent: int
    records: int
    lanes: int
    workspace: int
    graphs: int

    @property
    def total(self) -> int:
        return sum(self.weights.values()) + sum(
            (self.kv_pages, self.recurrent, self.records, self.lanes, self.workspace, self.graphs)
        )

    @property
    def parts(self) -> dict[str, int]:
        """Every use by name, in the order of the specification."""
        return {
            **{f"weights of {name}": count for name, count in self.weights.items()},
            "key/value pages": self.kv_pages,
            "recurrent state": self.recurrent,
            "replay records": self.records,
            "lanes": self.lanes,
            "workspace": self.workspace,
            "CUDA graphs": self.graphs,
        }


@dataclass(frozen=True)
class Fit:
    """`needed` and `available` bytes; `max_context` is the longest context that fits with the
    lanes asked for, `lanes` the most lanes with the context asked for; 0: none. `pooled` says
    that more pages are asked for than one sequence needs."""

    needed: int
    available: int
    max_context: int
    lanes: int
    pooled: bool

    @property
    def fits(self) -> bool:
        return self.needed <= self.available

    @property
    def remedy(self) -> str:
        """The largest setting that fits, as options."""
        choices = []
        if self.max_context:
            without = " without --kv-capacity" if self.pooled else ""
            choices.append(f"--max-context {self.max_context}{without}")
        if self.lanes:
            choices.append(f"--max-concurrency {self.lanes}")
        if choices:
            return f"at most {' or '.join(choices)} fits"
        return "no context fits: free memory, or use an artifact of smaller formats"


def make_budget(
    geometry: ModelGeometry,
    shape: Shape,
    weights: Mapping[str, int],
) -> Budget:
    """Return the budget of an engine whose weights were counted (rules MEM-2 to MEM-7)."""
    text = geometry.text
    recurrent, records = _count_recurrent(text, shape)
    workspace = _estimate_workspace(text, shape)
    return Budget(
        weights,
        _count_pages(text, shape),
        recurrent,
        records,
        _count_lanes(text, shape),
        workspace,
        _estimate_graphs(text, shape) if shape.cuda_graph else 0,
    )


def fit(geometry: ModelGeometry, shape: Shape, weights: Mapping[str, int], available: int) -> Fit:
    """Return whether the engine fits `available` bytes, and what would (rule MEM-8)."""

    least = replace(shape, pages=None).page_count

    def fits(**changes: int | None) -> bool:
        return make_budget(geometry, replace(shape, **changes), weights).total <= available

    most = max(shape.max_context, geometry.text.max_position_embeddings) // PAGE_TOKENS
    pages = _largest(lambda n: fits(max_context=n * PAGE_TOKENS, pages=None), most)
    lanes = _largest(lambda n: fits(lanes=n, pages=min(shape.page_count, n * least)), MAX_LANES)
    needed = make_budget(geometry, shape, weights).total
    return Fit(needed, available, pages * PAGE_TOKENS, lanes, shape.page_count > least)


def count_weights(
    artifact: Artifact, shape: Shape, requantised: Callable[[str], str | None] = lambda name: None
) -> dict[str, int]:
    """Return the bytes of the loaded parameters of every component in use (rule MEM-2).

    `requantised` gives the format that a bf16 matrix gets at load, None to leave it.
    """
    used = {"text": True, "mtp": shape.mtp, "vision": shape.vision, "proposal": shape.proposal}
    bindings = artifact.bindings
    head, embedding = "text/output_head", "text/token_embedding"
    tied = head in bindings and bindings[head] == bindings.get(embedding)
    counts = {name: 0 for name, wanted in used.items() if wanted}
    for name in bindings:
        component = name.partition("/")[0]
        if component in counts and not (tied and name == head):
            counts[component] += _count_parameter(artifact, name, shape, requantised(name))
    return counts


def _count_parameter(artifact: Artifact, name: str, shape: Shape, requantised: str | None) -> int:
    return sum(
        _count_part(name, part, shape, requantised) for part in artifact.parameter(name).parts
    )


def _count_part(name: str, part: ParameterPart, shape: Shape, requantised: str | None) -> int:
    format, count = part.tensor.format, part.end - part.begin
    if format == nf.INT32 or name.endswith(_FLOAT_VECTORS):
        return 4 * count
    if format == nf.BF16 and requantised is not None and len(part.tensor.shape) > 1:
        format = requantised
    if shape.decoded or format in (nf.BF16, nf.FP32):
        return shape.value_bytes * count
    return (count // part.row_elements) * row_bytes(format, part.row_elements)


def row_bytes(format: str, columns: int) -> int:
    """Return the bytes of one row of a quantised matrix as kernels read it."""
    if format == nf.NVFP4:
        blocks = -(-columns // 16)
        return blocks * 9 + 4
    if format == nf.FP8:
        return columns + 2
    known = nf.FORMATS[format]
    padded = -(-columns // 128) * 128
    return padded * known.bits // 8 + padded // known.group * 2


def _count_pages(text: TextGeometry, shape: Shape) -> int:
    layers = sum(kind == FULL_ATTENTION for kind in text.layer_types) + shape.mtp
    row = text.head_dim * _VALUE_BYTES[shape.kv_kind] + 2 * (shape.kv_kind in _SCALED_KINDS)
    return layers * shape.page_count * PAGE_TOKENS * 2 * text.num_key_value_heads * row


def _count_recurrent(text: TextGeometry, shape: Shape) -> tuple[int, int]:
    """Return the bytes of states and windows, and of replay records."""
    layers = sum(kind != FULL_ATTENTION for kind in text.layer_types)
    heads, keys = text.linear_num_value_heads, text.linear_num_key_heads
    state = 4 * text.linear_value_size * text.linear_key_head_dim
    channels = 2 * text.linear_key_size + text.linear_value_size
    window = (text.linear_conv_kernel_dim - 1 + _WINDOW_ROUNDS * shape.width) * channels
    window *= shape.value_bytes
    record = 4 * (keys * text.linear_key_head_dim + text.linear_value_size + heads)
    slots = shape.lanes
    records = _RECORD_ROUNDS * shape.width * record
    return layers * slots * (state + window) + 8 * slots, layers * slots * records


def _count_lanes(text: TextGeometry, shape: Shape) -> int:
    pages = -(-shape.max_context // PAGE_TOKENS) + 1
    words = _LANE_WORDS + shape.width + pages + -(-text.vocab_size // 32)
    return shape.lanes * (4 * words + 8 + 5 * text.vocab_size)


def _estimate_workspace(text: TextGeometry, shape: Shape) -> int:
    """What a prefill chunk and an uncaptured round hold at once, at most."""
    prefill = _count_activations(text, shape, shape.prefill_chunk)
    rounds = _count_activations(text, shape, shape.lanes * shape.width)
    decode = 0 if shape.decoded else _DECODE_BUFFER
    return max(prefill, rounds + _count_logits(text, shape)) + decode + 64 * _MIB


def _estimate_graphs(text: TextGeometry, shape: Shape) -> int:
    """All graphs share one pool, as large as the largest round, and take some memory each."""
    rounds = _count_activations(text, shape, shape.lanes * shape.width)
    buckets = math.ceil(math.log2(shape.lanes)) + 1
    return rounds + _count_logits(text, shape) + 4 * buckets * 16 * _MIB


def _count_logits(text: TextGeometry, shape: Shape) -> int:
    # Logits, penalised logits, and the sorted copy of a wide draw.
    return 4 * 4 * shape.lanes * shape.width * text.vocab_size


def _count_activations(text: TextGeometry, shape: Shape, tokens: int) -> int:
    gdn = 2 * (2 * text.linear_key_size + text.linear_value_size) + 2 * text.linear_value_size
    attention = 4 * text.query_size + 4 * text.key_value_size
    feed = 3 * (text.intermediate_size or 0)
    if text.is_moe:
        active = (text.num_experts_per_tok or 0) * (
            3 * (text.moe_intermediate_size or 0) + text.hidden_size
        )
        feed = active + 3 * (text.shared_expert_intermediate_size or 0)
    widest = max(gdn, attention, feed) + 6 * text.hidden_size
    # Chunked prefill keeps keys, values and updates of the recurrence in float32.
    recurrence = 16 * (text.linear_value_size + text.linear_key_size)
    return tokens * (shape.value_bytes * widest + recurrence)


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest n from 1 to `most` that fits, 0 if none; sizes grow with n."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
