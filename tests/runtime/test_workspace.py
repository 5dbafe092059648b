"""Laws of what passes and the allocator are said to take: held against passes and packings."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from builders.live_memory import META, LiveMemory, load_meta, replay, use_meta
from ninfer_formats.inventories.family import family_geometry
from ninfer_kernels.sampling import SamplingParameters
from ninfer_kernels.speculation import Drafts, reference
from ninfer_runtime.engine.prefill import Place, run_chunk, text_positions
from ninfer_runtime.engine.request import Request
from ninfer_runtime.engine.reservation import count_segments
from ninfer_runtime.engine.round import RoundKind, run_round
from ninfer_runtime.models.qwen3_5.patch_grid import PatchGrid
from ninfer_runtime.models.qwen3_5.vision import run_vision
from ninfer_runtime.weights.budget import Shape, graph_pool, make_budget
from ninfer_runtime.weights.device_costs import MEASURED
from ninfer_runtime.weights.workspace import count_draw, count_vision
from ninfer_tools.synthetic.artifact import open_synthetic

MIB = 1 << 20
DENSE = family_geometry("qwen3.8-27b")


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
    with LiveMemory() as memory:
        reference.judge_wide(logits, drafts, parameters, ones.int(), columns)
    counted = count_draw(text, lanes, width)
    assert 0.8 * counted <= memory.peak <= counted + 4096


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
    assert count_vision(narrow, 256, 2, 65536) == 65536 * (2 * 1536 + 6 * 144 + 64) + 2 * 1536 * 144
    assert count_vision(DENSE.vision, 5120, 2, 65536) == 65536 * (16 * 1152 + 64)


def test_libraries_have_a_workspace_for_each_stream():
    """MEM-7: captures have one of their own."""
    shape = Shape(2, 8192, 1, 1, 1024, "bf16")
    captured = make_budget(DENSE, shape, {}).libraries
    other = make_budget(DENSE, replace(shape, cuda_graph=False), {}).libraries
    assert other == MEASURED.libraries + MEASURED.products == captured - MEASURED.products
    assert make_budget(DENSE, replace(shape, decoded=True), {}).libraries == 0


MODELS = {
    "27b": "qwen3.8-27b:nvfp4",
    "35b": "qwen3.6-35b-a3b:nvfp4",
}
OPTIONS = {
    "plain": {"prefill_chunk": 1024},
    "few": {"prefill_chunk": 100, "lanes": 2, "dtype": "fp32"},
    "mtp": {"prefill_chunk": 4096, "lanes": 8, "speculator": "mtp", "draft_tokens": 3},
    "long": {"prefill_chunk": 300, "lanes": 2, "speculator": "mtp", "draft_tokens": 15},
}


@pytest.fixture(scope="module")
def synthetic():
    """The number of layers makes no difference to what a pass holds."""
    return {
        name: open_synthetic(f"{spec}:layers=4:components=text+mtp+vision")
        for name, spec in MODELS.items()
    }


@pytest.fixture
def load(synthetic, monkeypatch):
    use_meta(monkeypatch)

    def open_model(model, **options):
        capacity = 8192 * options.get("lanes", 1)
        options = {"max_context": 8192, "kv_capacity": capacity, "dtype": "bf16", **options}
        return load_meta(synthetic[model], 65536, **options)

    return open_model


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("model", MODELS)
def test_passes_of_real_models_hold_no_more_than_was_counted(load, model, options):
    """MEM-6: prefill, and rounds of every kind, with everything around the kernels."""
    found = load(model, **OPTIONS[options])
    chunk, shape = OPTIONS[options]["prefill_chunk"], replace(found.shape, vision=False)
    space = make_budget(found.geometry, shape, {}).workspace - MEASURED.margin
    pages = torch.zeros(1, 128, dtype=torch.int32, device=META)
    request, positions = Request((0,) * (chunk + 1), 1), text_positions(chunk + 1)
    with LiveMemory() as prefill:
        run_chunk(found.model, found.state, request, positions, Place(0, pages), 0, chunk)
    with LiveMemory() as rounds:
        emissions = [
            run_round(found.model, found.state, found.table, RoundKind(wide, edited, edited))
            for wide in (True, False)
            for edited in (True, False)
        ]
    assert len(emissions) == 4
    assert max(prefill.peak, rounds.peak) <= space
    # And not far less: memory that nothing uses could hold a longer context.
    assert max(prefill.peak, rounds.peak) >= 0.4 * space


@pytest.mark.parametrize("options", ["plain", "mtp", "long"])
@pytest.mark.parametrize("model", ["27b", "35b"])
def test_captures_take_no_segment_beside_the_pool(load, model, options):
    """MEM-7, MEM-19: the largest rounds first; what they gave is kept."""
    found = load(model, **OPTIONS[options])
    pool = graph_pool(found.geometry, found.shape)
    kept = []
    with LiveMemory() as memory:
        for lanes in sorted({1, 2, found.shape.lanes}, reverse=True):
            for wide in (True, False):
                kind = RoundKind(wide, wide, wide)
                table = found.table.first(lanes)
                kept.append(run_round(found.model, found.state, table, kind))
    assert replay(memory.changes, pool.large, pool.small) == (1, pool.small // (2 * MIB))


@pytest.mark.parametrize(
    ("model", "grid"), [("27b", (256, 256)), ("27b", (128, 128)), ("35b", (128, 128))]
)
def test_a_large_picture_holds_what_was_counted(load, model, grid):
    """MEM-6: at 65,536 patches of the 27B tower a GPU held 1,208,484,352 bytes."""
    found = load(model)
    tower, size = found.model.vision, grid[0] * grid[1]
    patches = torch.zeros(size, tower.geometry.patch_values, device=META)
    with LiveMemory() as memory:
        run_vision(tower, patches, [PatchGrid(1, *grid)])
    counted = count_vision(found.geometry.vision, found.geometry.text.hidden_size, 2, size)
    assert 0.97 * counted <= memory.peak <= counted
    if size == 65536:
        assert abs(memory.peak - 1_208_484_352) < MIB
