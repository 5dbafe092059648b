"""The command: exit codes, text and JSON. specs/other-engines.md, E-1 and E-3."""

import json

import pytest
from typer.testing import CliRunner

from builders.artifact_bytes import legacy_bytes, save, save_small, small_legacy_root
from builders.edited_artifacts import drop_objects, save_legacy, save_v3, v3_root
from ninfer_formats.errors import UsageError
from ninfer_tools.cli import app


def _check(path, *options):
    return CliRunner().invoke(app, ["check", str(path), *options])


def test_compatible_file_gives_one_line_and_code_0(tmp_path):
    result = _check(save_v3(tmp_path / "m.ninfer", v3_root(layers=4)))
    assert result.exit_code == 0
    first, *notes = result.stdout.splitlines()
    assert first == f"{tmp_path}/m.ninfer: can be loaded by this release"
    assert "  note: this release can read, verify, migrate and run it" in notes
    assert "way out" not in result.stdout


def test_incompatible_file_gives_reasons_then_the_way_out_and_code_1(tmp_path):
    path = save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b")
    result = _check(path, "--engine", "upstream-v3")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == f"{path}: cannot be loaded by upstream-v3"
    assert lines[1].startswith("  the file is container version 2 (18210531328 bytes)")
    way = lines.index("way out:")
    assert lines[way + 1] == f"  ninfer migrate {path} {tmp_path}/m-v3.ninfer --to 3"


def test_dead_end_is_said(tmp_path):
    """E-1."""
    path = save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b")
    result = _check(path, "--engine", "upstream-v1")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "way out: none known"


def test_json_is_one_object(tmp_path):
    path = save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b", groups=None)
    result = _check(path, "--engine", "upstream-v2", "--json")
    record = json.loads(result.stdout)
    assert result.exit_code == 1
    assert record["file"] == str(path)
    assert record["engine"] == "upstream-v2"
    assert record["compatible"] is False
    assert record["version"] == 2
    assert [command.split()[0] for command in record["remedies"]] == ["ninfer", "hf"]


def test_all_engines_make_a_table(tmp_path):
    path = save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b")
    result = _check(path, "--engine", "all")
    assert result.exit_code == 0
    answers = [line.split()[:2] for line in result.stdout.splitlines()[1:]]
    assert answers == [
        ["upstream-v1", "no"],
        ["upstream-v2", "yes"],
        ["upstream-v2-dflash2", "yes"],
        ["upstream-v3", "no"],
        ["this", "yes"],
    ]
    record = json.loads(_check(path, "--engine", "all", "--json").stdout)
    assert record["compatible"] is True
    assert len(record["engines"]) == 5


def test_all_engines_refusing_gives_code_1(tmp_path):
    """E-3."""

    def edit(root):
        drop_objects(root, "text/final_norm")

    path = save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b", edit=edit)
    assert _check(path, "--engine", "all").exit_code == 1


def test_unknown_engine_is_code_2_and_lists_the_names(tmp_path):
    result = _check(tmp_path / "absent.ninfer", "--engine", "vllm")
    assert result.exit_code == 2
    assert "upstream-v2-dflash2" in result.stderr
    assert "unknown engine" in result.stderr


def test_newer_version_is_code_1(tmp_path):
    path = save(tmp_path / "next.ninfer", b"NINFER\0\4" + bytes(64))
    result = _check(path)
    assert result.exit_code == 1
    assert "newer release" in result.stderr


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"GGUF" + bytes(60), "GGUF"),
        (b"version https://git-lfs.github.com/spec/v1\n" + bytes(40), "git-lfs pointer"),
        ((64).to_bytes(8, "little") + b'{"__metadata__":{}}' + bytes(60), "safetensors"),
    ],
)
def test_foreign_file_is_code_2_and_named(tmp_path, head, words):
    result = _check(save(tmp_path / "m.ninfer", head))
    assert result.exit_code == 2
    assert words in result.stderr


def test_truncated_file_is_code_1_with_both_sizes(tmp_path):
    path = save_small(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:-100])
    result = _check(path)
    assert result.exit_code == 1
    assert f"file is {len(data) - 100} bytes, directory says {len(data)}" in result.stderr


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda objects: objects[1].update(name=objects[0]["name"]), "duplicate object name"),
        (lambda objects: objects[2].update(offset=512), "overlaps the object before it"),
        (lambda objects: objects[2].update(bytes=529), "tensor stores 529 bytes"),
    ],
)
def test_illegal_directory_is_code_1_before_any_engine_is_asked(tmp_path, edit, words):
    root = small_legacy_root()
    edit(root["objects"])
    path = save(tmp_path / "m.ninfer", legacy_bytes(2, root, bytes(4096)))
    result = _check(path, "--engine", "upstream-v2")
    assert result.exit_code == 1
    assert words in result.stderr


def test_file_or_synthetic_must_be_named():
    from ninfer_tools.check_artifact import run

    with pytest.raises(UsageError):
        run(
            file=None,
            synthetic=None,
            engine="this",
            max_directory_bytes=1 << 28,
            json_output=False,
        )


def test_names_from_the_file_stay_one_plain_line(tmp_path):
    def edit(root):
        root["identity"]["weights_id"] = "evil\x1b[2J\nname"

    path = save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b", edit=edit)
    result = _check(path)
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout
    assert "\\x1b[2J" in result.stdout
