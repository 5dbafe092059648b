"""Problems whose one line has to say enough to act on."""

from __future__ import annotations

import json

from builders.checkpoints import INDEX, build_checkpoint
from ninfer_tools.convert.sources.checkpoint import open_checkpoint
from ninfer_tools.convert.sources.preflight import find_problems


def lines(folder):
    found = find_problems({"base": open_checkpoint(folder)})
    return [str(problem) for problem in found.problems]


def test_unknown_layout_of_experts_is_one_line(tmp_path):
    """V-149: not one line for what is missing, one per component and one for the rest."""
    tiny = build_checkpoint(moe=True)
    for name in [n for n in tiny.tensors if ".mlp.experts." in n]:
        other = name.replace("gate_up_proj", "w13").replace("down_proj", "w2")
        tiny.tensors[other] = tiny.tensors.pop(name)
    (line,) = lines(tiny.write(tmp_path / "m"))
    assert "the routed experts are stored in a layout that is not known" in line
    assert "model.language_model.layers.0.mlp.experts.w13" in line
    assert "want mlp.experts.gate_up_proj and mlp.experts.down_proj, or mlp.experts.N." in line


def test_stray_tensor_among_known_experts_is_called_by_name(tmp_path):
    """S-71: what is there is not hidden behind the layout."""
    tiny = build_checkpoint(moe=True)
    name = "model.language_model.layers.0.mlp.experts.gate_up_proj"
    tiny.tensors[f"{name}_twin"] = tiny.tensors[name]
    (line,) = lines(tiny.write(tmp_path / "m"))
    assert line.endswith(f"tensors for which the model has no place: {name}_twin")


def test_summary_of_many_absent_shards_names_the_folder(tmp_path):
    """S-22 and S-75."""
    folder = build_checkpoint().write(tmp_path / "m", 2)
    index = json.loads((folder / INDEX).read_text())
    for i, name in enumerate(list(index["weight_map"])[:24]):
        index["weight_map"][name] = f"absent-{i}.safetensors"
    (folder / INDEX).write_text(json.dumps(index))
    summary = [line for line in lines(folder) if "24 in all, 10 shown" in line]
    assert summary == [f"{folder}: the index names a file that is absent: 24 in all, 10 shown"]


def test_stale_index_is_named(tmp_path):
    """S-21."""
    folder = build_checkpoint().write(tmp_path / "m", 2)
    build_checkpoint().write(folder)
    assert any(
        f"both model.safetensors and {INDEX}, which does not name it" in x for x in lines(folder)
    )


def test_impossible_header_length_says_what_to_do(tmp_path):
    """S-10."""
    folder = build_checkpoint().write(tmp_path / "m")
    path = folder / "model.safetensors"
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
    line = next(x for x in lines(folder) if "not a safetensors file" in x)
    assert "a header of 18,446,744,073,709,551,615 bytes); download it again" in line


def test_header_behind_a_space_is_called_so(tmp_path):
    """S-10."""
    folder = build_checkpoint().write(tmp_path / "m")
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little") + 1
    path.write_bytes(length.to_bytes(8, "little") + b" " + raw[8:])
    line = next(x for x in lines(folder) if "not a safetensors file" in x)
    assert "got a header that begins with ' '" in line
