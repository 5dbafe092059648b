"""Laws of how options become an engine, and where it is to run."""

from __future__ import annotations

import pytest

from ninfer_formats.errors import NinferError
from ninfer_runtime.config import EngineConfig
from ninfer_runtime.models.qwen3_5.model import read_geometry
from ninfer_tools.serve_session.engine_checks import choose_engine, make_config
from ninfer_tools.serve_session.options import ServeOptions
from ninfer_tools.serve_session.place import Place, find_place, imagine_place, measure_gpu
from ninfer_tools.serve_session.problems import ProblemList
from ninfer_tools.synthetic.artifact import open_synthetic


@pytest.fixture(scope="module")
def artifact():
    return open_synthetic("qwen3.8-27b:nvfp4:layers=4")


def test_every_option_of_the_engine_reaches_it(artifact):
    options = ServeOptions(
        dtype="fp32", max_context=4096, kv_capacity="8192", max_concurrency=2, prefill_chunk=128,
        kv_dtype="int8", spec="mtp", draft_tokens=5, lm_head_draft=True, vision=True,
        cuda_graph=False, requantize="head=w8", host_cache_mib=3, device_snapshots=6,
    )  # fmt: skip
    found = make_config(options, read_geometry(artifact), Place("cuda:1", None))
    assert found == EngineConfig(
        device="cuda:1", dtype="fp32", max_context=4096, kv_capacity=8192, lanes=2,
        prefill_chunk=128, kv_kind="int8", speculator="mtp", draft_tokens=5, proposal_head=True,
        vision=True, cuda_graph=False, requantize={"head": found.requantize["head"]},
        prefix_reuse=True, snapshots=6, host_cache_mib=3,
    )  # fmt: skip


def test_settings_of_a_gpu_need_none(artifact):
    problems = ProblemList()
    choice = choose_engine(artifact, ServeOptions(), Place("cuda", None), problems)
    assert choice is not None and not len(problems)
    settings = choice.settings
    assert (str(settings.device), settings.kv_kind, settings.cuda_graph) == ("cuda", "bf16", True)
    assert not settings.decoded


def test_a_processor_is_found_with_what_is_free():
    place = find_place("cpu")
    assert place.device == "cpu" and place.free


@pytest.mark.parametrize("name", ["tpu", "cuda:", "cuda:x", "cpu:0", ""])
def test_other_devices_are_refused(name: str):
    with pytest.raises(NinferError, match="--device cannot be used"):
        find_place(name)
    with pytest.raises(NinferError, match="--device cannot be used"):
        imagine_place(name, 1 << 30)


def test_memory_without_a_device_is_that_of_a_gpu():
    assert imagine_place("auto", 5) == Place("cuda", 5)
    assert imagine_place("cpu", 5) == Place("cpu", 5)


def test_a_gpu_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: object, **more: object) -> None:
        raise RuntimeError("no such GPU\nwith a trace")

    monkeypatch.setattr("torch.empty", refuse)
    assert measure_gpu("cuda:7") == (
        0, [("device cannot be used: no such GPU", "use --device cpu")]
    )  # fmt: skip
