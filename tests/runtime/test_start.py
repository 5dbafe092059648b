"""What happens between the load and the first request."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from builders.engines import answer, make_engine, random_prompt
from ninfer_formats.inventories.family import family_geometry
from ninfer_runtime.config import EngineConfig
from ninfer_runtime.engine import engine as engine_module
from ninfer_runtime.engine import reservation
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.graphs import Rounds
from ninfer_runtime.engine.request import Request, Sampling
from ninfer_runtime.engine.round import RoundKind
from ninfer_runtime.engine.warm_up import warm_up
from ninfer_runtime.errors import StartupError
from ninfer_runtime.frontend.pixel_settings import count_frame_patches
from ninfer_runtime.models.qwen3_5.model import list_weights
from ninfer_runtime.models.qwen3_5.patch_grid import PatchGrid
from ninfer_runtime.models.qwen3_5.vision import cut_grids
from ninfer_runtime.weights.budget import Shape, make_budget
from ninfer_runtime.weights.preflight import MemoryPlan, ran_out
from ninfer_tools.cli import app

MIB = 1 << 20
OOM = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def fail(*arguments: Any, **options: Any) -> Any:
    raise OOM


def fail_under_another(*arguments: Any, **options: Any) -> Any:
    """As a capture that ran out: ending it is another error."""
    try:
        raise OOM
    finally:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")


STAGES = [
    (engine_module, "load_model", fail),
    (engine_module, "allocate_state", fail),
    (engine_module, "allocate_lanes", fail),
    (Engine, "_start", fail),
    (Rounds, "__init__", fail_under_another),
]


@pytest.mark.parametrize(("owner", "name", "failure"), STAGES, ids=lambda item: str(item)[:20])
def test_running_out_at_any_stage_of_the_start_is_one_error(
    artifact, monkeypatch, owner, name, failure
):
    """MEM-9: numbers that say why, and a smaller setting that fits."""
    monkeypatch.setattr(owner, name, failure)
    config = EngineConfig(device="cpu", max_context=512)
    with pytest.raises(StartupError, match=r"needs \d+ bytes, \d+ are available") as caught:
        Engine(artifact("shallow"), config)
    text = str(caught.value)
    needed, available = (int(number) for number in re.findall(r"(\d+)(?: bytes| are)", text))
    assert needed == available + 1
    assert "\n" not in text and "at most --max-context 448 fits" in text


def test_command_that_runs_out_says_so_in_one_line(artifact, monkeypatch):
    """MEM-9"""
    monkeypatch.setattr(Engine, "_start", fail)
    words = ["run", str(artifact("shallow").path), "--prompt-ids", "1,2", "--device", "cpu"]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, SystemExit) and result.exit_code not in (0, 130)
    assert "not enough memory: needs" in result.stderr and "Traceback" not in result.output


def test_what_says_that_memory_ran_out_is_known():
    """MEM-9: torch, the driver and libraries have words of their own; other errors are none."""
    for text in (
        "CUDA error: out of memory",
        "Triton Error [CUDA]: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.",
    ):
        assert ran_out(RuntimeError(text))
    with pytest.raises(RuntimeError) as caught:
        fail_under_another()
    assert ran_out(caught.value)
    assert not ran_out(RuntimeError("CUDA error: an illegal memory access was encountered"))


def test_other_errors_of_the_start_stay_what_they_are(artifact, monkeypatch):
    def broken(*arguments: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(Engine, "_start", broken)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        Engine(artifact("shallow"), EngineConfig(device="cpu", max_context=512))


@pytest.mark.parametrize("options", [{}, {"speculator": "mtp", "draft_tokens": 2}])
def test_warm_up_leaves_nothing_in_the_lanes(artifact, options):
    """EN-20"""
    request = Request(random_prompt(40, seed=8), 12, logprobs=3)
    want = answer(make_engine(artifact("dense"), **options), request)
    engine = make_engine(artifact("dense"), prefill_chunk=50, **options)
    table = [plane.clone() for plane in engine.table.planes]
    warm_up(engine.model, engine.state, engine.settings)
    assert any(bool(cache.keys.any()) for cache in engine.state.caches)
    assert not any(bool(plane.any()) for plane in engine.state.decoder.recurrent.planes)
    assert all(map(torch.equal, engine.table.planes, table))
    got = answer(engine, request)
    assert (got.tokens, got.scores) == (want.tokens, want.scores)


def test_a_round_that_can_do_more_gives_the_same_tokens(artifact):
    """EN-7: rounds that edit logits and draw from the whole vocabulary, for requests that want
    neither, one of them, or both."""
    samplings = (
        Sampling(), Sampling(temperature=0.8, top_k=20, seed=1), Sampling(repetition=1.3),
        Sampling(temperature=1.2, top_p=0.9, seed=2, presence=0.5),
    )  # fmt: skip
    requests = [Request(random_prompt(20, seed=i), 16, s) for i, s in enumerate(samplings)]
    for options in ({}, {"speculator": "mtp", "draft_tokens": 2}):
        want = [answer(make_engine(artifact("dense"), **options), r).tokens for r in requests]
        engine = make_engine(artifact("dense"), **options)
        run = engine._rounds.run
        engine._rounds.run = lambda kind, lanes, run=run: run(RoundKind(True, True, True), lanes)
        assert [answer(engine, request).tokens for request in requests] == want


def test_reserved_are_the_planned_bytes_without_graphs_and_libraries(monkeypatch):
    """MEM-19: one segment, and small ones of tensors that share."""
    taken = []

    def take(size: int, **options: Any) -> Any:
        taken.append(size)
        return SimpleNamespace()

    shape = Shape(2, 8192, 2, 4, 1024, "bf16", vision=True, patches=65536)
    budget = make_budget(family_geometry("qwen3.8-27b"), shape, {"text": 17000 * MIB})
    monkeypatch.setattr(reservation, "start_libraries", lambda device, captured: None)
    monkeypatch.setattr(torch, "empty", take)
    plan = MemoryPlan(budget, shape)
    weights = [16640 * MIB, MIB + 1, *[MIB] * 20, *[MIB // 2] * 80]
    reservation.reserve_memory(torch.device("cuda"), plan, weights)
    reservation.reserve_spare(torch.device("cuda"), plan)
    assert sum(taken) == budget.total - budget.graphs - budget.libraries
    small = 60 * MIB + plan.costs.small
    assert max(taken) == sum(taken) - small and taken.count(MIB) == small // MIB


@pytest.mark.parametrize("name", ["dense", "moe"])
def test_weights_are_listed_as_they_are_allocated(artifact, name):
    """MEM-19: by a model without memory."""
    engine = make_engine(artifact(name), speculator="mtp", draft_tokens=2)
    sizes = list_weights(artifact(name), engine.geometry, engine.settings)
    assert sum(sizes) == sum(engine.plan.budget.weights.values())
    assert all(size > 0 for size in sizes)


def test_videos_are_cut_between_frames():
    """MEM-6: parts of up to the limit, or of one frame; frames stay in order."""
    grids = [PatchGrid(5, 4, 4), PatchGrid(1, 20, 10), PatchGrid(2, 2, 4), PatchGrid(1, 4, 4)]
    parts = list(cut_grids(grids, most=50))
    assert parts == [
        [PatchGrid(3, 4, 4)],
        [PatchGrid(2, 4, 4)],
        [PatchGrid(1, 20, 10)],
        [PatchGrid(2, 2, 4), PatchGrid(1, 4, 4)],
    ]
    assert list(cut_grids(grids)) == [grids]


def test_vision_memory_grows_with_the_largest_image():
    """MEM-6: and is nothing where the tower is left out."""
    geometry = family_geometry("qwen3.8-27b")
    sizes = [
        make_budget(geometry, Shape(2, 8192, 1, 1, 1024, "bf16", vision=on, patches=n), {})
        for on, n in ((False, 65536), (True, 65536), (True, 131072))
    ]
    spaces = [budget.workspace for budget in sizes]
    assert spaces[0] < spaces[1] < spaces[2]
    assert spaces[2] - spaces[1] == 65536 * (1152 * 16 + 64)


def test_most_patches_are_those_of_the_preprocessor_files(artifact, monkeypatch):
    """MEM-6: an image of 16,777,216 pixels where there is no file."""
    source, monkey = artifact("dense"), monkeypatch
    vision = engine_module.read_geometry(source).vision
    assert vision is not None
    from ninfer_runtime.frontend import pixel_settings

    files: dict[str, Any] = {}
    monkey.setattr(pixel_settings, "read_json", lambda artifact, name: files.get(name))
    assert count_frame_patches(source, vision) == 65536
    files[pixel_settings.IMAGE_FILE] = {"size": {"shortest_edge": 1024, "longest_edge": 262144}}
    files[pixel_settings.VIDEO_FILE] = {"size": {"shortest_edge": 1024, "longest_edge": 1048576}}
    assert count_frame_patches(source, vision) == 2048
