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
from ninfer_runtime.weights.device_costs import MEASURED, DeviceCosts
from ninfer_runtime.weights.workspace import (
    count_activations,
    count_decoded,
    count_draw,
    count_logits,
    count_vision,
)

PAGE_TOKENS = 64
MAX_LANES = 8

# Words of one lane beside its columns, pages and vocabulary: 6 counters, 16 stop ids, 512 biases
# with their ids, 4 sampling parameters and 3 penalties (MEM-5).
_LANE_WORDS = 6 + 16 + 2 * 512 + 4 + 3

# Segments that torch's allocator takes from the driver are a multiple of the one, and for tensors
# above 1 MiB at least the other.
_SEGMENT, _LEAST_SEGMENT = 2 << 20, 20 << 20

# Rounds whose columns and records a slot holds at once.
_WINDOW_ROUNDS, _RECORD_ROUNDS = 2, 3

_VALUE_BYTES = {"fp32": 4, "bf16": 2, "fp8": 1, "int8": 1}
_SCALED_KINDS = ("fp8", "int8")
_FLOAT_VECTORS = ("a_log", "dt_bias")
# Of two axes, but read like vectors.
_TABLES = ("/convolution", "/position_embedding")


@dataclass(frozen=True)
class Shape:
    """What decides the size of an engine.

    `value_bytes` is the size of the compute type, `matrix_bytes` that of a value of a direct
    matrix (None: the same), `decoded` says that all matrices are kept so;
    `width` counts the columns of a round, drafts and one. `pages` None: as many as one sequence
    of `max_context` tokens needs. `patches` is the most patches of an image. `snapshots` are kept
    prefixes, each with the state of a sequence and one page.
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
    patches: int = 0
    matrix_bytes: int | None = None
    snapshots: int = 0

    @property
    def mtp(self) -> bool:
        return self.width > 1

    @property
    def graphs(self) -> int:
        """How many rounds are captured: four kinds for every bucket of lanes."""
        return 4 * (math.ceil(math.log2(self.lanes)) + 1) if self.cuda_graph else 0

    @property
    def page_count(self) -> int:
        least = -(-self.max_context // PAGE_TOKENS)
        return least if self.pages is None else self.pages


@dataclass(frozen=True)
class Budget:
    """Bytes of device memory by use; `weights` by component. `libraries` are kernels as they are
    loaded and what libraries keep for themselves."""

    weights: Mapping[str, int]
    kv_pages: int
    recurrent: int
    records: int
    lanes: int
    workspace: int
    graphs: int
    libraries: int

    @property
    def total(self) -> int:
        return sum(self.parts.values())

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
            "libraries": self.libraries,
        }


@dataclass(frozen=True)
class GraphPool:
    """Bytes of the memory of captured rounds: one segment for tensors above 1 MiB, and segments
    for smaller ones."""

    large: int
    small: int

    @property
    def total(self) -> int:
        return self.large + self.small


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
    costs: DeviceCosts = MEASURED,
) -> Budget:
    """Return the budget of an engine whose weights were counted (rules MEM-2 to MEM-7)."""
    text = geometry.text
    recurrent, records = _count_recurrent(text, shape)
    return Budget(
        weights,
        _count_pages(text, shape),
        recurrent,
        records,
        _count_lanes(text, shape),
        _count_workspace(geometry, shape, costs),
        _count_graphs(text, shape, costs) if shape.cuda_graph else 0,
        0 if shape.decoded else count_libraries(shape, costs),
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
    """Return the bytes of the loaded parameters of every component in use (rule MEM-2)."""
    return sum_components(count_parameters(artifact, shape, requantised))


def sum_components(parameters: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes of every component, given those of its parameters by name."""
    counts: dict[str, int] = {}
    for name, size in parameters.items():
        component = name.partition("/")[0]
        counts[component] = counts.get(component, 0) + size
    return counts


def count_parameters(
    artifact: Artifact, shape: Shape, requantised: Callable[[str], str | None] = lambda name: None
) -> dict[str, int]:
    """Return the bytes of every loaded parameter of the components in use (rule MEM-2).

    `requantised` gives the format that a bf16 matrix gets at load, None to leave it.
    """
    used = {"text": True, "mtp": shape.mtp, "vision": shape.vision, "proposal": shape.proposal}
    bindings = artifact.bindings
    head, embedding = "text/output_head", "text/token_embedding"
    tied = head in bindings and bindings[head] == bindings.get(embedding)
    return {
        name: _count_parameter(artifact, name, shape, requantised(name))
        for name in bindings
        if used.get(name.partition("/")[0]) and not (tied and name == head)
    }


def _count_parameter(artifact: Artifact, name: str, shape: Shape, requantised: str | None) -> int:
    return sum(
        _count_part(name, part, shape, requantised) for part in artifact.parameter(name).parts
    )


def _count_part(name: str, part: ParameterPart, shape: Shape, requantised: str | None) -> int:
    format, count = part.tensor.format, part.end - part.begin
    if format == nf.INT32 or name.endswith(_FLOAT_VECTORS):
        return 4 * count
    if len(part.tensor.shape) == 1 or name.endswith(_TABLES):
        return shape.value_bytes * count
    if format == nf.BF16 and requantised is not None:
        format = requantised
    if shape.decoded or format in (nf.BF16, nf.FP32):
        return (shape.matrix_bytes or shape.value_bytes) * count
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
    pages = shape.page_count + shape.snapshots
    return layers * pages * PAGE_TOKENS * 2 * text.num_key_value_heads * row


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
    stored = layers * (slots + shape.snapshots) * (state + window)
    return stored + 8 * slots, layers * slots * records


def _count_lanes(text: TextGeometry, shape: Shape) -> int:
    pages = -(-shape.max_context // PAGE_TOKENS) + 1
    words = _LANE_WORDS + shape.width + pages + -(-text.vocab_size // 32)
    return shape.lanes * (4 * words + 8 + 5 * text.vocab_size)


def _count_workspace(geometry: ModelGeometry, shape: Shape, costs: DeviceCosts) -> int:
    """What a prefill chunk, an uncaptured round or an image holds at once, at most."""
    text = geometry.text
    chunk = min(shape.prefill_chunk, shape.max_context)
    passes = [_count_pass(text, shape, chunk), _count_round(text, shape)]
    if shape.vision and geometry.vision is not None:
        passes.append(
            count_vision(geometry.vision, text.hidden_size, shape.value_bytes, shape.patches)
        )
    return max(passes) + costs.margin


def _count_graphs(text: TextGeometry, shape: Shape, costs: DeviceCosts) -> int:
    """All graphs share one pool, and take some memory each."""
    layers = len(text.layer_types) + shape.mtp * (shape.width - 1)
    each = costs.graph + layers * costs.graph_layer
    return _count_pool(text, shape, costs).total + shape.graphs * each


def count_libraries(shape: Shape, costs: DeviceCosts) -> int:
    """Rounds are captured on a stream of their own."""
    return costs.libraries + costs.products * (2 if shape.cuda_graph else 1)


def graph_pool(geometry: ModelGeometry, shape: Shape, costs: DeviceCosts = MEASURED) -> GraphPool:
    """Return the pool that captured rounds share."""
    return _count_pool(geometry.text, shape, costs)


def _count_pool(text: TextGeometry, shape: Shape, costs: DeviceCosts) -> GraphPool:
    """As large as the largest round, with some room between tensors."""
    most = _count_round(text, shape) * 17 // 16
    return GraphPool(max(_LEAST_SEGMENT, -(-most // _SEGMENT) * _SEGMENT), costs.pool_small)


def _count_round(text: TextGeometry, shape: Shape) -> int:
    """The passes through the layers and the head, or a draw from the whole vocabulary after them;
    with the logits."""
    rows = shape.lanes * shape.width
    passes = _count_pass(text, shape, rows, with_head=True)
    draw = count_activations(text, shape.value_bytes, rows)
    draw += count_draw(text, shape.lanes, shape.width)
    return max(passes, draw) + count_logits(text, rows)


def _count_pass(text: TextGeometry, shape: Shape, rows: int, with_head: bool = False) -> int:
    decoded = 0 if shape.decoded else count_decoded(text, shape.value_bytes, rows, with_head)
    return count_activations(text, shape.value_bytes, rows) + decoded


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest n from 1 to `most` that fits, 0 if none; sizes grow with n."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
