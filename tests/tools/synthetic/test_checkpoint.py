"""Synthetic checkpoints have the official names, shapes and files."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.checkpoint_config import drafter_from_config, geometry_from_config
from ninfer_formats.inventories.family import FAMILY_NAMES
from ninfer_formats.inventories.parameters import list_parameters
from ninfer_tools.synthetic import folder_output
from ninfer_tools.synthetic.checkpoint import INDEX, plan_checkpoint, write_checkpoint
from ninfer_tools.synthetic.checkpoint_tensors import list_checkpoint_tensors
from ninfer_tools.synthetic.safetensors_file import Entry
from ninfer_tools.synthetic.specification import parse_spec

SMALL = "qwen3.5-0.8b:{}:layers=1:vocab=600:seed=5:components=text"


def entries_of(spec: str) -> dict[str, Entry]:
    plan = plan_checkpoint(parse_spec(spec + ":vocab=600"))
    return {entry.name: entry for shard in plan.shards.values() for entry in shard}


def config_of(spec: str) -> dict:
    return json.loads(plan_checkpoint(parse_spec(spec)).texts["config.json"])


def read_tensors(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    header.pop("__metadata__")
    spans = sorted(tensor["data_offsets"] for tensor in header.values())
    assert spans[0][0] == 0 and spans[-1][1] == len(body)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))
    return {
        name: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])])
        for name, t in header.items()
    }


# Tensor counts of the published bf16 releases.
@pytest.mark.parametrize(("model", "count"), [("qwen3.8-27b", 1199), ("qwen3.6-35b-a3b", 1045)])
def test_bf16_checkpoint_has_as_many_tensors_as_the_release(model, count):
    assert len(list(list_checkpoint_tensors(parse_spec(f"{model}:bf16").geometry()))) == count


@pytest.mark.parametrize("model", FAMILY_NAMES)
def test_checkpoint_holds_every_element_of_every_parameter(model):
    geometry = parse_spec(f"{model}:bf16").geometry()
    stored = sum(math.prod(t.shape) for t in list_checkpoint_tensors(geometry))
    needed = {p.name: math.prod(p.shape) for p in list_parameters(geometry, geometry.components)}
    if geometry.text.tie_word_embeddings:
        del needed["text/output_head"]
    assert stored == sum(needed.values())


@pytest.mark.parametrize("model", FAMILY_NAMES)
@pytest.mark.parametrize("components", ("text", "text+mtp", "text+mtp+vision"))
def test_config_describes_the_geometry_it_was_made_from(model, components):
    spec = parse_spec(f"{model}:bf16:layers=8:vocab=600:components={components}")
    config = json.loads(plan_checkpoint(spec).texts["config.json"])
    assert geometry_from_config(config) == spec.geometry()


@pytest.mark.parametrize(("model", "kind"), [("qwen3.8-27b", "dflash2"), ("qwen3.6-27b", "dflash")])
def test_drafter_is_a_checkpoint_of_its_own(model, kind):
    spec = parse_spec(f"{model}:bf16:vocab=600:{kind}=1")
    plan, geometry = plan_checkpoint(spec), spec.geometry()
    config = json.loads(plan.texts[f"{kind}/config.json"])
    assert drafter_from_config(config, geometry.text) == geometry.drafter
    # Tensor counts of the published drafters.
    assert len(plan.shards[f"{kind}/model.safetensors"]) == {"dflash2": 81, "dflash": 58}[kind]


def test_official_profile_quantises_the_matrices_of_the_release():
    names = entries_of("qwen3.8-27b:nvfp4-official")
    packed = [n for n in names if n.endswith(".weight_packed")]
    rows = [n for n, e in names.items() if n.endswith(".weight") and e.dtype == "F8_E4M3"]
    assert (len(packed), len(rows)) == (168, 233)
    assert names["lm_head.weight"].dtype == "F8_E4M3"
    assert names["model.language_model.embed_tokens.weight"].dtype == "BF16"
    assert names["model.language_model.layers.55.mlp.up_proj.weight_packed"].shape == (17408, 2560)
    assert names["model.language_model.layers.56.mlp.up_proj.weight"].dtype == "F8_E4M3"


def test_nvfp4_profile_packs_projections_and_leaves_the_rest():
    names = entries_of("qwen3.8-27b:nvfp4:layers=4")
    prefix = "model.language_model.layers.0.linear_attn"
    assert names[f"{prefix}.in_proj_qkv.weight_packed"].shape == (10240, 2560)
    assert names[f"{prefix}.in_proj_qkv.weight_scale"].shape == (10240, 320)
    assert names[f"{prefix}.in_proj_a.weight"].dtype == "BF16"
    assert names[f"{prefix}.A_log"].dtype == names[f"{prefix}.norm.weight"].dtype == "F32"
    assert names["lm_head.weight"].dtype == names["mtp.fc.weight"].dtype == "BF16"


def test_grouped_integers_are_left_to_the_conversion():
    assert {e.dtype for e in entries_of("qwen3.8-27b:groupwise-int").values()} == {"BF16", "F32"}


def test_quantised_experts_are_stored_one_by_one():
    plain = entries_of("qwen3.6-35b-a3b:bf16:layers=1")
    experts = "model.language_model.layers.0.mlp.experts"
    assert plain[f"{experts}.gate_up_proj"].shape == (256, 1024, 2048)
    packed = entries_of("qwen3.6-35b-a3b:nvfp4:layers=1")
    assert packed[f"{experts}.255.gate_proj.weight_packed"].shape == (512, 1024)
    assert packed[f"{experts}.255.down_proj.weight_packed"].shape == (2048, 256)
    assert f"{experts}.gate_up_proj" not in packed


def matches(targets: list[str], module: str) -> bool:
    return any(re.match(target.removeprefix("re:"), module) for target in targets)


def test_quantisation_section_names_what_is_packed_and_what_is_not():
    section = config_of("qwen3.6-35b-a3b:nvfp4-official:layers=8:vocab=600")["quantization_config"]
    assert section["format"] == "mixed-precision"
    fp4, fp8 = (section["config_groups"][g] for g in ("group_0", "group_1"))
    assert (fp4["weights"]["num_bits"], fp8["weights"]["num_bits"]) == (4, 8)
    layers = "model.language_model.layers"
    assert matches(fp4["targets"], f"{layers}.0.mlp.experts.17.up_proj")
    assert not matches(fp4["targets"], f"{layers}.7.mlp.experts.17.up_proj")
    assert matches(fp8["targets"], f"{layers}.3.self_attn.q_proj")
    assert len(fp4["targets"]) == 7 * 6
    assert f"{layers}.0.linear_attn.in_proj_a" in section["ignore"]
    assert "quantization_config" not in config_of("qwen3.6-35b-a3b:bf16:layers=1:vocab=600")


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints") / "small"
    write_checkpoint(parse_spec(SMALL.format("nvfp4")), folder)
    return folder


def test_written_folder_holds_the_files_of_a_checkpoint(written):
    assert sorted(p.name for p in written.iterdir()) == [
        "chat_template.jinja", "config.json", "generation_config.json",
        "model-00001-of-00001.safetensors", "model.safetensors.index.json",
        "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json",
        "video_preprocessor_config.json",
    ]  # fmt: skip


def test_index_lists_every_tensor_of_the_shards(written):
    index = json.loads((written / INDEX).read_text())
    tensors = read_tensors(written / "model-00001-of-00001.safetensors")
    assert set(index["weight_map"]) == set(tensors)
    assert index["metadata"]["total_size"] == sum(len(data) for _, _, data in tensors.values())


def test_matrices_with_the_same_input_share_both_divisors(written):
    tensors = read_tensors(written / "model-00001-of-00001.safetensors")
    mlp = "model.layers.0.mlp"
    for name in ("weight_global_scale", "input_global_scale"):
        gate, up = (tensors[f"{mlp}.{m}_proj.{name}"] for m in ("gate", "up"))
        assert gate == up and gate[:2] == ("F32", [1])
    down = tensors[f"{mlp}.down_proj.input_global_scale"]
    assert down[2] != tensors[f"{mlp}.up_proj.input_global_scale"][2]


def test_written_scales_are_legal_and_values_have_the_role(written):
    tensors = read_tensors(written / "model-00001-of-00001.safetensors")
    scales = np.frombuffer(tensors["model.layers.0.mlp.down_proj.weight_scale"][2], np.uint8)
    assert scales.min() >= 0x01 and scales.max() <= 0x7E
    a_log = np.frombuffer(tensors["model.layers.0.linear_attn.A_log"][2], "<f4")
    assert (a_log > 0).all() and (a_log < math.log(16)).all()


def test_the_same_specification_gives_the_same_bytes(written, tmp_path):
    write_checkpoint(parse_spec(SMALL.format("nvfp4")), tmp_path / "again", threads=1)
    for file in written.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()


def test_progress_reaches_the_reported_size(tmp_path):
    seen: list[tuple[int, int]] = []
    spec = parse_spec(SMALL.format("fp8"))
    size = write_checkpoint(
        spec, tmp_path / "out", progress=lambda done, total: seen.append((done, total))
    )
    on_disk = sum(p.stat().st_size for p in (tmp_path / "out").iterdir())
    assert seen[-1] == (size, size) == (on_disk, on_disk)


def test_existing_folder_is_refused_and_replaced_with_force(tmp_path):
    spec, target = parse_spec(SMALL.format("fp8")), tmp_path / "out"
    target.mkdir()
    (target / "config.json").write_text("{}")
    (target / "old").write_text("x")
    with pytest.raises(UsageError, match="exists"):
        write_checkpoint(spec, target)
    assert (target / "old").exists()
    write_checkpoint(spec, target, force=True)
    assert not (target / "old").exists() and (target / INDEX).exists()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_force_never_replaces_a_folder_that_is_no_checkpoint(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="not a checkpoint"):
        write_checkpoint(parse_spec(SMALL.format("fp8")), tmp_path, force=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_full_disk_is_found_before_the_first_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_output, "free_bytes", lambda folder: 10**6)
    with pytest.raises(UsageError, match="not enough free disk space"):
        write_checkpoint(parse_spec(SMALL.format("fp8")), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_interrupted_run_leaves_nothing(tmp_path):
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(parse_spec(SMALL.format("fp8")), tmp_path / "out", progress=interrupt)
    assert not list(tmp_path.iterdir())
