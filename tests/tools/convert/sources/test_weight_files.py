"""Index and shards agree, or are refused with a list: S-20 to S-26, case 51."""

from __future__ import annotations

import json

import numpy as np
import pytest

from builders.checkpoints import INDEX, build_checkpoint
from builders.stored_forms import Stored, encode_safetensors
from ninfer_tools.convert.sources.checkpoint import open_checkpoint
from ninfer_tools.convert.sources.preflight import find_problems

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
HEAD = "lm_head.weight"


@pytest.fixture
def folder(tmp_path):
    return build_checkpoint().write(tmp_path / "base", shards=2)


def edit_index(folder, change):
    path = folder / INDEX
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


def only_problem(folder):
    (problem,) = open_checkpoint(folder).problems
    return str(problem)


def test_shards_and_one_file_hold_the_same(tmp_path, folder):
    """S-20."""
    one = open_checkpoint(build_checkpoint().write(tmp_path / "one"))
    two = open_checkpoint(folder)
    assert not one.problems and not two.problems
    assert two.weight_files == (FIRST, SECOND)
    assert one.tensors.keys() == two.tensors.keys()
    for name, tensor in one.tensors.items():
        assert np.array_equal(one.words(tensor), two.words(two.tensors[name])), name


def test_both_a_single_file_and_an_index_are_refused(tmp_path, folder):
    """S-21."""
    build_checkpoint().write(tmp_path / "one")
    (tmp_path / "one/model.safetensors").rename(folder / "model.safetensors")
    assert "both model.safetensors and model.safetensors.index.json" in only_problem(folder)


def test_index_of_a_single_file_is_fine(tmp_path):
    """S-21."""
    tiny = build_checkpoint()
    folder = tiny.write(tmp_path)
    weight_map = dict.fromkeys(tiny.tensors, "model.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    assert not open_checkpoint(folder).problems


def test_absent_shard_is_named(folder):
    """S-22: and its tensors are not also called missing."""
    (folder / SECOND).unlink()
    found = find_problems({"base": open_checkpoint(folder)})
    assert [p.what for p in found.problems] == ["the index names a file that is absent"]
    assert found.problems[0].got == SECOND


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "sub/x.safetensors"])
def test_index_cannot_point_out_of_the_folder(folder, name):
    """S-22."""
    (folder / "sub").mkdir()
    (folder / "sub/x.safetensors").write_bytes((folder / FIRST).read_bytes())
    edit_index(folder, lambda weight_map: weight_map.update({"more": name}))
    assert "names a file that is absent" in only_problem(folder)


def test_tensor_in_another_shard_is_named_with_both(folder):
    """S-23."""
    found = open_checkpoint(folder).tensors[HEAD].file
    wrong = FIRST if found == SECOND else SECOND
    edit_index(folder, lambda weight_map: weight_map.update({HEAD: wrong}))
    assert f"{HEAD} in {found} (not {wrong})" in only_problem(folder)


def test_tensor_in_two_shards_is_refused(tmp_path, folder):
    """S-24."""
    tiny = build_checkpoint()
    half = {name: t for name, t in tiny.tensors.items() if HEAD not in name}
    halves = [dict(list(half.items())[:40]), dict(list(half.items())[40:])]
    for file, part in zip((FIRST, SECOND), halves, strict=True):
        (folder / file).write_bytes(encode_safetensors(part | {HEAD: tiny.tensors[HEAD]}))
    placed = dict.fromkeys(halves[0], FIRST) | dict.fromkeys(halves[1], SECOND)
    edit_index(folder, lambda weight_map: weight_map.update(placed))
    text = only_problem(folder)
    assert "tensors lie in two files" in text and f"{HEAD} in {FIRST} and {SECOND}" in text


def test_tensors_that_no_file_holds_are_listed_ten_at_most(folder):
    """S-25, S-75."""
    more = {f"more.{i:03d}": FIRST for i in range(30)}
    edit_index(folder, lambda weight_map: weight_map.update(more))
    text = only_problem(folder)
    assert "more.000" in text and "more.009" in text and "more.010" not in text
    assert "(30 in all)" in text


def test_every_fault_is_reported_at_once(folder):
    """S-3."""
    held = open_checkpoint(folder).tensors[HEAD].file
    wrong = FIRST if held == SECOND else SECOND
    edit_index(folder, lambda weight_map: weight_map.update({"more": FIRST, HEAD: wrong}))
    (folder / "config.json").write_text("{")
    whats = [p.what for p in open_checkpoint(folder).problems]
    assert len(whats) == 3
    assert "not JSON" in whats[0] and "no file holds" in whats[1] and "another file" in whats[2]


def test_unlisted_tensors_and_files_are_used_or_left_with_a_notice(folder):
    """S-26: an index without the MTP tensors loses nothing."""
    edit_index(folder, lambda names: [names.pop(n) for n in list(names) if "mtp" in n])
    (folder / "goldens.safetensors").write_bytes(encode_safetensors({}))
    found = open_checkpoint(folder)
    assert not found.problems and "mtp.fc.weight" in found.tensors
    tensors, files = found.notices
    assert "mtp." in tensors and "goldens.safetensors" in files


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("adapter_model.safetensors", "merge it into its base model"),
        ("pytorch_model.bin", "save the checkpoint as safetensors"),
        ("model-00001-of-00009.safetensors", "model-00001-of-00009.safetensors"),
    ],
)
def test_folder_without_weights_says_what_it_has(tmp_path, name, expected):
    """S-20."""
    folder = build_checkpoint().write(tmp_path)
    (folder / "model.safetensors").rename(folder / name)
    assert expected in only_problem(folder)


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"weight_map": {"a": 1}}', '{"weight_map": {}}', "{"]
)
def test_index_that_is_none_is_refused(folder, text):
    """S-20."""
    (folder / INDEX).write_text(text)
    assert "index" in only_problem(folder)


def test_broken_shard_is_one_problem_and_not_hundreds(folder):
    """S-11, S-22, case 46: nothing else is guessed about what it holds."""
    raw = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(raw[:-4096])
    found = find_problems({"base": open_checkpoint(folder)})
    (problem,) = found.problems
    assert "cut short" in problem.what and str(problem.path).endswith(SECOND)


def test_empty_tensor_shares_its_offset(tmp_path):
    """S-13."""
    tiny = build_checkpoint()
    tiny.tensors["x.inv_freq"] = Stored("F32", np.empty((0, 4), "<f4"))
    assert not open_checkpoint(tiny.write(tmp_path)).problems
