"""Laws of what passes and the allocator are said to take: held against passes and packings."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ninfer_formats.inventories.family import family_geometry
from ninfer_kernels.sampling import SamplingParameters
from ninfer_kernels.speculation import Drafts, reference
from ninfer_runtime.engine.reservation import count_segments
from ninfer_runtime.weights.budget import Shape, graph_pool, make_budget
from ninfer_runtime.weights.device_costs import MEASURED
from ninfer_runtime.weights.workspace import count_draw, count_vision

MIB = 1 << 20
DENSE = family_geometry("qwen3.8-27b")


class Peak(TorchDispatchMode):
    """Counts the most bytes that tensors made inside hold at once."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, int] = {}
        self.most = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None) -> Any:
        results = function(*arguments, **(options or {}))
        for tensor in tree_leaves(results):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.held:
                    self.held[storage._cdata] = storage.nbytes()
                    weakref.finalize(storage, self.held.pop, storage._cdata, None)
        self.most = max(self.most, sum(self.held.values()))
        return results


@pytest.mark.parametrize(("lanes", "width"), [(1, 1), (1, 4), (3, 2), (2, 8), (1, 16)])
def test_a_draw_from_the_whole_vocabulary_holds_what_was_counted(lanes, width):
    """MEM-6: never more, and no less than four fifths of it."""
    text = replace(DENSE.text, vocab_size=20000)
    ones = torch.ones(lanes)
    parameters = SamplingParameters(ones, ones.int(), ones, ones, ones.long())
    some = torch.ones(lanes, width - 1, 1)
    drafts = Drafts(some.int().squeeze(2), some.int(), some)
    logits = torch.randn(lanes, width, text.vocab_size)
    columns = torch.full((lanes,), width, dtype=torch.int32)
    with Peak() as peak:
        reference.judge_wide(logits, drafts, parameters, ones.int(), columns)
    counted = count_draw(text, lanes, width)
    assert 0.8 * counted <= peak.most <= counted + 4096


@pytest.mark.parametrize(
    ("sizes", "segments"),
    [
        ([MIB] * 5, 3),
        ([700_000] * 6, 3),  # three do not fit into one
        ([MIB + 1, 3 * MIB, 0], 0),
        ([1] * 4096, 1),
        ([1] * 4097, 2),
        ([1_000_000, 1_000_000, 97_000, 97_000], 2),
        # Each goes where the least room is left that suffices.
        ([MIB, 600_000, MIB, 400_000, MIB - 600_064], 2),
    ],
)
def test_small_tensors_are_packed_as_the_allocator_packs_them(sizes, segments):
    """MEM-19: units of 512 bytes, segments of 2 MiB, tensors up to 1 MiB."""
    assert count_segments(sizes) == segments


@pytest.mark.parametrize(("lanes", "width"), [(1, 1), (2, 3), (8, 4)])
def test_the_pool_of_graphs_is_made_of_segments_and_counted_whole(lanes, width):
    """MEM-7: at least 20 MiB above 1 MiB, in segments of 2 MiB."""
    shape = Shape(2, 8192, lanes, width, 1024, "bf16")
    pool, layers = graph_pool(DENSE, shape), len(DENSE.text.layer_types) + (width > 1) * (width - 1)
    assert pool.large % (2 * MIB) == 0 and pool.large >= 20 * MIB
    assert pool.large >= lanes * width * 8 * 248320 + count_draw(DENSE.text, lanes, width)
    each = MEASURED.graph + layers * MEASURED.graph_layer
    assert make_budget(DENSE, shape, {}).graphs == pool.total + shape.graphs * each


def test_a_pool_of_a_tiny_model_is_the_least_segment():
    """MEM-7."""
    tiny = replace(DENSE, text=replace(DENSE.text, vocab_size=300, hidden_size=64))
    assert graph_pool(tiny, Shape(2, 512, 1, 1, 64, "bf16")).large == 20 * MIB


def test_a_tower_of_narrow_layers_is_as_large_as_its_input():
    """MEM-6: 65,536 patches of 1,536 values, a layer of 144 and its sums in float32."""
    assert DENSE.vision is not None
    narrow = replace(DENSE.vision, hidden_size=144, intermediate_size=192)
    assert count_vision(narrow, 2, 65536) == 65536 * (2 * 1536 + 6 * 144 + 64)
    assert count_vision(DENSE.vision, 2, 65536) == 65536 * (16 * 1152 + 64)


def test_libraries_have_a_workspace_for_each_stream():
    """MEM-7: captures have one of their own."""
    shape = Shape(2, 8192, 1, 1, 1024, "bf16")
    captured = make_budget(DENSE, shape, {}).libraries
    other = make_budget(DENSE, replace(shape, cuda_graph=False), {}).libraries
    assert other == MEASURED.libraries + MEASURED.products == captured - MEASURED.products
    assert make_budget(DENSE, replace(shape, decoded=True), {}).libraries == 0
