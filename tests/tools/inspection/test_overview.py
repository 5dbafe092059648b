"""Laws of the overview: anything that opens is described, exit 0, from its directory alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from builders.artifact_bytes import (
    entry_bytes,
    legacy_bytes,
    save,
    save_multi_file,
    save_small,
    small_legacy_root,
    small_payload,
    small_root,
)
from builders.edited_artifacts import (
    drop_objects,
    find_object,
    lay_again,
    save_legacy,
    save_v3,
    v3_root,
)

KEYS = [
    "path", "synthetic", "version", "identity", "name", "artifact_id", "architecture", "model",
    "profile", "directory_bytes", "directory_sha256", "files", "bytes", "expected_bytes",
    "recognised", "groups", "objects", "parameters", "formats", "largest", "resources",
    "policies", "provenance", "engines", "problems", "notices", "payload_checked",
]  # fmt: skip
MEMBER_KEYS = {
    "model": [
        "layers", "full_attention_layers", "gdn_layers", "hidden_size", "intermediate_size",
        "num_experts", "num_experts_per_tok", "moe_intermediate_size", "vocab_size",
        "max_position_embeddings", "vision_layers", "mtp", "drafter",
    ],
    "files": ["name", "state", "bytes", "expected_bytes", "problem"],
    "recognised": [
        "match", "confirmed", "repository", "filename", "version", "revision", "sha256", "text",
    ],
    "groups": ["group", "state", "objects", "bytes", "missing", "faults", "reason"],
    "formats": ["format", "objects", "values", "bytes"],
    "largest": ["id", "shape", "format", "layout", "bytes"],
    "resources": ["component", "role", "id", "bytes"],
    "engines": ["engine", "compatible", "reasons", "notices", "remedies"],
}  # fmt: skip
ENGINES = ["upstream-v1", "upstream-v2", "upstream-v2-dflash2", "upstream-v3", "this"]


def test_json_schema_is_stable(tmp_path, inspect):
    path = save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b", groups=None)
    record = inspect(path, "--json").record
    assert list(record) == KEYS
    for name, keys in MEMBER_KEYS.items():
        value = record[name]
        assert list(value[0] if isinstance(value, list) else value) == keys, name
    assert list(record["identity"]) == ["model_id", "weights_id"]


def test_published_version_2_file_is_described_completely(tmp_path, inspect):
    path = save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b", groups=None)
    record = inspect(path, "--json").record
    assert record["bytes"] == record["expected_bytes"] == 20_437_336_576
    assert record["directory_bytes"] == 185_105
    assert record["profile"] == "groupwise-int"
    assert record["model"]["layers"] == 64 and record["model"]["drafter"] == "dflash2"
    assert [item["state"] for item in record["groups"]].count("complete") == 5
    (match,) = record["recognised"]
    assert (match["match"], match["confirmed"]) == ("size", False)
    assert match["revision"] == "dc370fb6295ae8b786e1af4f90d7142a16255c35"
    assert [item["engine"] for item in record["engines"]] == ENGINES
    assert [item["engine"] for item in record["engines"] if item["compatible"]] == [
        "upstream-v2-dflash2",
        "this",
    ]
    assert record["policies"] == {"A16Only": 844}
    assert record["payload_checked"] is False
    assert record["problems"] == record["notices"] == []


def test_text_names_the_published_file_and_what_was_not_checked(tmp_path, inspect):
    path = save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b", groups=None)
    answer = inspect(path)
    assert answer.code == 0
    assert "same size as neroued/Qwen3.8-27B-NInfer qwen3_8_27b.ninfer" in answer.out
    assert "(rev dc370fb6295a)" in answer.out
    assert "dflash2   complete  66 objects   2.07 GiB" in answer.out
    assert answer.out.splitlines()[-1] == (
        "This quick check reads the directory, not the weights: damaged payload bytes show only "
        "with --verify."
    )


def test_another_size_or_object_count_is_not_recognised(tmp_path, inspect):
    def edit(root):
        find_object(root, "frontend/tokenizer.json")["bytes"] -= 512

    path = save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b", edit=edit)
    assert inspect(path, "--json").record["recognised"] != []
    with path.open("ab") as file:
        file.truncate(path.stat().st_size + 1)
    assert inspect(path, "--json").record["recognised"] == []


def test_version_1_is_recognised_by_its_directory(tmp_path, inspect):
    from builders.sparse_files import save_legacy as save_marked

    path = save_marked(tmp_path / "m.ninfer", "3.6 int", version=1)
    (match,) = inspect(path, "--json").record["recognised"]
    assert match["match"] == "directory"
    assert match["text"].startswith("same directory as neroued/Qwen3.6-27B-NInfer")


@pytest.mark.parametrize(
    ("profile", "model"),
    [
        ("groupwise-int", "qwen3.8-27b"),
        ("groupwise-int", "qwen3.6-27b"),
        ("nvfp4", "qwen3.8-27b"),
        ("nvfp4-official", "qwen3.8-27b"),
        ("fp8", "qwen3.5-9b"),
        ("bf16", "qwen3.5-0.8b"),
        ("groupwise-int", "qwen3.5-35b-a3b"),
    ],
)
def test_profile_of_a_version_3_file_is_named(tmp_path, inspect, profile, model):
    root = v3_root(model, profile, ("text", "vision", "mtp"), layers=8)
    record = inspect(save_v3(tmp_path / "m.ninfer", root), "--json").record
    assert record["profile"] == profile


def test_formats_of_no_profile_get_no_name(tmp_path, inspect):
    root = v3_root(components=("text",), layers=4)
    norm = find_object(root, root["bindings"]["text/final_norm"]["object"])
    norm["format"] = "fp32"
    lay_again(root)
    assert inspect(save_v3(tmp_path / "m.ninfer", root), "--json").record["profile"] is None


def test_mixture_of_experts_is_summed_up_in_one_line(tmp_path, inspect):
    root = v3_root("qwen3.5-35b-a3b", components=("text",), layers=4)
    out = inspect(save_v3(tmp_path / "m.ninfer", root)).out
    assert (
        "4 layers (1 full attention, 3 GDN), hidden 2,048, 256 experts (8 active) of 512, "
        "vocabulary 248,320"
    ) in out


def test_partial_group_lists_what_is_missing_and_still_exits_0(tmp_path, inspect):
    lost = ["dflash2/context_norm", "dflash2/layers/2/mlp/down"]
    edit = lambda root: drop_objects(root, *lost)  # noqa: E731
    answer = inspect(save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b", groups=None, edit=edit))
    assert answer.code == 0
    assert "dflash2   partial   64 objects" in answer.out and "2 missing" in answer.out
    assert all(name in answer.out for name in lost)


def test_unregistered_identity_is_described(tmp_path, inspect):
    root = small_legacy_root()
    root["identity"]["model_id"] = "llama-7b"
    path = save(tmp_path / "m.ninfer", legacy_bytes(2, root, bytes(1808)))
    answer = inspect(path, "--json")
    assert answer.code == 0
    assert answer.record["model"] is None
    assert answer.record["groups"][0]["objects"] == 3
    assert answer.record["resources"] == [
        {
            "component": None,
            "role": "tokenizer.json",
            "id": "frontend/tokenizer.json",
            "bytes": 700,
        }
    ]
    assert inspect(path).code == 0


def test_unreadable_config_and_unknown_format_are_described(tmp_path, inspect):
    root = small_root()
    root["objects"][1]["format"] = "t2_g128_fp16"
    path = save(tmp_path / "m.ninfer", entry_bytes(root, small_payload()))
    answer = inspect(path, "--json")
    assert answer.code == 0
    formats = {item["format"]: item["objects"] for item in answer.record["formats"]}
    assert formats == {"t2_g128_fp16": 1, "fp32": 1}
    assert any("config" in line or "required key" in line for line in answer.record["problems"])


def test_appended_bytes_show_in_the_size(tmp_path, inspect):
    path = save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b")
    os.truncate(path, path.stat().st_size + 5)
    assert "; the directory says 18,210,531,328" in inspect(path).out


def test_every_part_is_looked_at(tmp_path, inspect):
    path = save_multi_file(tmp_path)
    (tmp_path / "multi.ninfer.part-0002").unlink()
    foreign = tmp_path / "multi.ninfer.part-0001"
    data = bytearray(foreign.read_bytes())
    data[20] ^= 1
    foreign.write_bytes(data)
    answer = inspect(path, "--json")
    states = {item["name"]: item["state"] for item in answer.record["files"]}
    assert answer.code == 0
    assert states == {
        "multi.ninfer": "present",
        "multi.ninfer.part-0001": "foreign",
        "multi.ninfer.part-0002": "missing",
    }
    assert "multi.ninfer.part-0002  missing" in inspect(path).out


@pytest.mark.parametrize("cut", [7, 20, 5000])
def test_truncated_file_is_refused_with_both_sizes(tmp_path, inspect, cut):
    data = save_small(tmp_path, 2).read_bytes()
    answer = inspect(save(tmp_path / "cut.ninfer", data[:cut]))
    assert answer.code in (1, 2) and answer.out == ""
    assert answer.err.count("\n") == 1
    assert f"{cut} bytes" in answer.err


def test_names_cannot_drive_the_terminal(tmp_path, inspect):
    evil = "text/\x1b[2J\u202e\nx"
    root = small_root()
    root["objects"][1]["id"] = evil
    for binding in root["bindings"].values():
        binding["parts"][0]["object"] = evil
    root["components"][evil] = {"config": {}}
    root["metadata"]["name"] = evil
    root["provenance"][evil] = evil
    path = save(tmp_path / "m.ninfer", entry_bytes(root, small_payload()))
    for options in ([], ["--objects", "*"], ["--parameters", "*"], ["--resources"], ["--digest"]):
        answer = inspect(path, *options)
        assert answer.code == 0
        assert "\x1b" not in answer.out and "\u202e" not in answer.out
        assert "\\x1b[2J" in answer.out or options in (["--resources"], ["--parameters", "*"])


def test_synthetic_artifact_is_described_without_a_file(inspect):
    spec = "qwen3.5-0.8b:nvfp4:layers=4:vocab=600:components=text"
    record = inspect("--synthetic", spec, "--json").record
    assert list(record) == KEYS
    assert record["synthetic"] is True and record["path"] == spec
    assert record["profile"] == "nvfp4" and record["directory_sha256"] is None


def test_directory_cap_is_an_option(tmp_path, inspect):
    root = small_root()
    root["provenance"]["note"] = "x" * (2 << 20)
    path = save(tmp_path / "m.ninfer", entry_bytes(root, small_payload()))
    assert inspect(path).code == 0
    answer = inspect(path, "--max-directory-mib", "1")
    assert answer.code == 1 and "larger than the cap" in answer.err


def test_command_runs_without_torch_or_codecs_of_other_commands(tmp_path):
    script = (
        "import sys; from ninfer_tools.entry_point import main\n"
        f"sys.argv = ['ninfer', 'inspect', {str(save_small(tmp_path, 2))!r}]\n"
        "try: main()\nexcept SystemExit as end: code = end.code\n"
        "print([n for n in ('torch', 'safetensors', 'tqdm') if n in sys.modules], code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[] 0", done.stderr
