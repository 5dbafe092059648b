"""Laws of the memory budget: what is allocated is what was counted, to the byte."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from builders.checkpoints import build_checkpoint
from builders.conversions import converted
from builders.tensor_bytes import bytes_of
from ninfer_formats import numeric_formats as nf
from ninfer_formats.inventories.family import family_geometry
from ninfer_formats.layouts.geometry import encoded_size
from ninfer_kernels.linear.matrix import FORMATS, plane_forms
from ninfer_runtime.config import EngineConfig, resolve
from ninfer_runtime.engine import devices
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.lanes import allocate_lanes
from ninfer_runtime.errors import StartupError
from ninfer_runtime.models.qwen3_5.model import allocate_state, load_model, read_geometry
from ninfer_runtime.weights import preflight
from ninfer_runtime.weights.budget import Shape, count_weights, fit, make_budget, row_bytes
from ninfer_runtime.weights.preflight import (
    enough_memory,
    plan_memory,
    require_memory,
    shape_of,
)

GIB = 1 << 30
CUDA = torch.device("cuda")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("artifacts")
    dense = build_checkpoint().write(folder / "dense")
    options = {
        "nvfp4": (dense, {"profile": "nvfp4"}),
        "groupwise-int": (dense, {"profile": "groupwise-int"}),
        "moe": (build_checkpoint(moe=True).write(folder / "moe"), {"profile": "nvfp4"}),
        "tied": (build_checkpoint(tied=True).write(folder / "tied"), {"profile": "bf16"}),
    }
    return {
        name: converted(source, folder / f"{name}.ninfer", proposal_rows=64, **more)
        for name, (source, more) in options.items()
    }


def settings_of(artifact, **options):
    config = EngineConfig(device="cpu", **{"max_context": 200, **options})
    return resolve(config, read_geometry(artifact), True)


@pytest.mark.parametrize("name", ["nvfp4", "groupwise-int", "moe", "tied"])
def test_weights_take_what_was_counted(artifacts, name):
    """MEM-2: of every component, and nothing of components that are left out."""
    artifact = artifacts[name]
    geometry = read_geometry(artifact)
    for options in (
        {"vision": False},
        {"vision": True, "speculator": "mtp", "proposal_head": True},
    ):
        settings = settings_of(artifact, dtype="bf16", **options)
        model, _ = load_model(artifact, geometry, settings, lambda count: None)
        counted = count_weights(artifact, shape_of(settings))
        assert set(counted) == {"text"} if not options["vision"] else len(counted) == 4
        assert bytes_of(model.text) == counted["text"]
        if options["vision"]:
            rotation = bytes_of(model.vision.rotation)
            assert bytes_of(model.vision) - rotation == counted["vision"]
            assert bytes_of(model.mtp) == counted["mtp"]
            assert bytes_of(model.proposal) == counted["proposal"]


@pytest.mark.parametrize("format", [f for f in FORMATS if f not in (nf.BF16, nf.FP32)])
def test_bytes_of_a_row_are_those_of_its_planes(format):
    """MEM-2: 7 rows of 200 values, which no group divides."""
    planes = plane_forms(format, 7, 200).values()
    want = sum(torch.empty(shape, dtype=dtype).nbytes for shape, dtype in planes)
    assert 7 * row_bytes(format, 200) == want


@pytest.mark.parametrize("kind", ["fp32", "bf16", "fp8", "int8"])
@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("reuse", [False, True])
def test_state_takes_what_was_counted(artifacts, kind, drafts, reuse):
    """MEM-3, MEM-4, MEM-5, PX-6: pages, recurrent state, records and lanes; snapshots of prefixes,
    one a lane and at least four."""
    artifact = artifacts["nvfp4"]
    geometry = read_geometry(artifact)
    speculation = {"speculator": "mtp", "draft_tokens": drafts} if drafts else {}
    settings = settings_of(
        artifact, kv_kind=kind, lanes=3, kv_capacity=400, prefix_reuse=reuse, **speculation
    )
    assert settings.snapshots == (4 if reuse else 0)
    budget = make_budget(geometry, shape_of(settings), {})
    state = allocate_state(geometry, settings, settings.lanes)
    assert bytes_of((state.decoder.kv, state.mtp)) == budget.kv_pages
    records = bytes_of([layer.records for layer in state.decoder.recurrent.layers])
    assert records == budget.records
    recurrent = bytes_of((state.decoder.recurrent, state.snapshots))
    assert recurrent - records == budget.recurrent
    assert bytes_of(allocate_lanes(settings, geometry.text.vocab_size)) == budget.lanes


def test_published_example_of_the_cache():
    """MEM-3: 27B, 64-layer decoder with 16 attention layers of 4 heads of 256: 65,536 bytes a token
    in bf16, 33,024 in fp8."""
    geometry = family_geometry("qwen3.8-27b")
    for kind, per_token in (("bf16", 65536), ("fp8", 33024)):
        shape = Shape(2, 262144, 1, 1, 1024, kind)
        assert make_budget(geometry, shape, {}).kv_pages == 262144 * per_token


def test_total_is_the_sum_of_the_parts():
    """MEM-1."""
    shape = Shape(2, 8192, 4, 4, 1024, "bf16")
    budget = make_budget(family_geometry("qwen3.8-27b"), shape, {"text": 17 * GIB, "mtp": GIB})
    assert budget.total == sum(budget.parts.values())
    assert budget.parts["weights of mtp"] == GIB and all(n > 0 for n in budget.parts.values())


def test_workspace_grows_with_chunk_and_lanes_and_graphs_only_when_captured():
    """MEM-6, MEM-7."""
    geometry = family_geometry("qwen3.6-35b-a3b")
    small = Shape(2, 8192, 1, 1, 256, "bf16")
    least = make_budget(geometry, small, {})
    assert make_budget(geometry, replace(small, prefill_chunk=4096), {}).workspace > least.workspace
    assert make_budget(geometry, replace(small, lanes=8), {}).graphs > least.graphs
    assert make_budget(geometry, replace(small, cuda_graph=False), {}).graphs == 0


def test_largest_setting_that_fits_fits_and_the_next_does_not():
    """MEM-8."""
    geometry = family_geometry("qwen3.8-27b")
    shape, weights = Shape(2, 262144, 1, 4, 1024, "bf16"), {"text": 17 * GIB}
    found = fit(geometry, shape, weights, 24 * GIB)
    assert not found.fits and 0 < found.max_context < 262144 and found.max_context % 64 == 0

    def total(context):
        return make_budget(geometry, replace(shape, max_context=context), weights).total

    assert total(found.max_context) <= 24 * GIB < total(found.max_context + 64)
    assert f"--max-context {found.max_context}" in found.remedy
    assert found.lanes == 0


def test_most_lanes_that_fit_fit():
    """MEM-8: with eight contexts of pages asked for, each lane takes its own away."""
    geometry = family_geometry("qwen3.8-27b")
    shape, weights = Shape(2, 8192, 8, 8, 1024, "bf16", pages=1024), {"text": 17 * GIB}
    found = fit(geometry, shape, weights, 25 * GIB)
    assert 1 <= found.lanes < 8
    for lanes, fits in ((found.lanes, True), (found.lanes + 1, False)):
        changed = replace(shape, lanes=lanes, pages=128 * lanes)
        assert (make_budget(geometry, changed, weights).total <= 25 * GIB) == fits
    assert f"--max-concurrency {found.lanes}" in found.remedy
    assert "without --kv-capacity" in found.remedy


def test_weights_that_do_not_fit_leave_no_setting():
    """MEM-8."""
    shape = Shape(2, 8192, 1, 1, 1024, "bf16")
    found = fit(family_geometry("qwen3.8-27b"), shape, {"text": 17 * GIB}, 16 * GIB)
    assert (found.max_context, found.lanes) == (0, 0) and "no context fits" in found.remedy


def test_shortage_is_told_to_the_byte(artifacts):
    """MEM-9: one byte less than needed is refused, what is needed is enough."""
    artifact = artifacts["nvfp4"]
    geometry, settings = read_geometry(artifact), settings_of(artifact)
    plan = plan_memory(artifact, geometry, settings)
    exact, short = (
        fit(geometry, plan.shape, plan.budget.weights, plan.budget.total - less) for less in (0, 1)
    )
    needed = plan.budget.total
    require_memory(artifact, exact, CUDA)
    with pytest.raises(StartupError) as caught:
        require_memory(artifact, short, CUDA)
    text = str(caught.value)
    assert f"needs {needed} bytes, {needed - 1} are available" in text
    assert f"--max-context {short.max_context}" in text and "\n" not in text


def test_engine_that_does_not_fit_reads_nothing(artifacts, monkeypatch):
    """MEM-9: the check stands before the load."""
    monkeypatch.setattr(preflight, "free_memory", lambda device: 1000)
    read = []
    with pytest.raises(StartupError, match="1000 are available"):
        Engine(artifacts["nvfp4"], EngineConfig(device="cpu", max_context=64), read.append)
    assert read == []


def test_running_out_during_start_is_the_same_error(artifacts):
    """MEM-9."""
    artifact = artifacts["nvfp4"]
    settings = settings_of(artifact)
    with (
        pytest.raises(StartupError, match=r"needs \d+ bytes, \d+ are available"),
        enough_memory(artifact, read_geometry(artifact), settings),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_requantised_matrices_count_in_their_new_format(artifacts):
    """MEM-2, MEM-17: 320 x 128 words of two bytes become rows of 32 groups."""
    artifact, shape = artifacts["tied"], Shape(2, 64, 1, 1, 64, "bf16")
    before = count_weights(artifact, shape)["text"]
    formats = {"text/token_embedding": nf.Q8}
    after = count_weights(artifact, shape, formats.get)["text"]
    assert before - after == 320 * 128 * 2 - encoded_size(nf.Q8, nf.ROW_SPLIT, (320, 128))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"capability": (7, 5)}, r"RTX: this GPU is not supported .*7\.5.*use --device cpu"),
        ({"triton": False}, "triton is not installed"),
        ({"compiler": None}, "no C compiler.*gcc"),
        ({"headers": False}, "no Python headers.*python3-dev"),
    ],
)
def test_machine_that_cannot_run_kernels_is_refused_in_one_line(change, message):
    """MEM-18."""
    facts = devices.GpuFacts("RTX", (8, 0), True, "/usr/bin/cc", True)
    devices.require_support(facts)
    with pytest.raises(StartupError, match=message) as caught:
        devices.require_support(replace(facts, **change))
    assert "\n" not in str(caught.value)


def test_free_memory_of_a_processor_is_what_the_system_has():
    found = devices.free_memory(torch.device("cpu"))
    assert found is None or 1 << 20 < found < 1 << 50


def test_free_memory_of_a_container_is_what_is_left_of_its_limit(tmp_path):
    """MEM-9: 1000 kB free; a limit of 900,000 with 700,000 used, 50,000 of them cached files."""
    assert devices.free_host_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 1000 kB\n")
    assert devices.free_host_memory(tmp_path) == 1_024_000
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("700000\n")
    assert devices.free_host_memory(tmp_path) == 1_024_000
    (group / "memory.max").write_text("900000\n")
    (group / "memory.stat").write_text("anon 650000\ninactive_file 50000\n")
    assert devices.free_host_memory(tmp_path) == 250_000
