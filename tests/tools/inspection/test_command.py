"""Laws of the options: every one has an effect or is refused by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from builders.artifact_bytes import save, save_small
from ninfer_tools.artifact_source import open_source


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no artifact given"),
        (["FILE", "--synthetic", "qwen3.5-0.8b:bf16"], "two artifacts given"),
        (["--synthetic", "qwen3.5-0.8b:bf16", "--verify"], "a directory only"),
        (["--synthetic", "qwen3.5-0.8b:bf16", "--magic"], "a directory only"),
        (["--synthetic", "qwen3.5-0.8b:unheard-of"], "unknown profile"),
        (["FILE", "--magic", "--objects", "*"], "--magic stands alone"),
        (["FILE", "--force"], "--force belongs to --extract"),
        (["FILE", "--json", "--extract", "x=-"], "both write to standard output"),
        (["FILE", "--extract", "x"], "not an extraction"),
        (["FILE", "--extract", "=x"], "not an extraction"),
        (["FILE", "--extract", "x="], "not an extraction"),
    ],
)
def test_impossible_combination_is_bad_usage(tmp_path, inspect, arguments, message):
    path = save_small(tmp_path)
    answer = inspect(*(path if item == "FILE" else item for item in arguments))
    assert answer.code == 2 and (answer.out == "" or "--json" in arguments)
    assert message in answer.err and answer.err.count("\n") == 1


@pytest.mark.parametrize("name", ["absent.ninfer", "."])
def test_path_that_is_no_file_is_bad_usage(tmp_path, inspect, name):
    answer = inspect(tmp_path / name)
    assert (answer.code, answer.out) == (2, "")


def test_foreign_file_is_exit_2_and_broken_artifact_exit_1(tmp_path, inspect):
    assert inspect(save(tmp_path / "a", b"GGUF" + bytes(100))).code == 2
    assert (
        inspect(save(tmp_path / "b", b"NINFER\0\2" + (5).to_bytes(8, "little") + b"[[[[[")).code
        == 1
    )


def test_listings_share_one_json_object(tmp_path, inspect):
    record = inspect(
        save_small(tmp_path), "--objects", "*", "--parameters", "*", "--resources", "--json"
    ).record
    assert list(record) == ["path", "version", "objects", "parameters", "resources"]


def test_worst_exit_code_of_all_sections_wins(tmp_path, inspect):
    answer = inspect(save_small(tmp_path), "--objects", "none", "--resources")
    assert answer.code == 1


def test_globs_may_be_left_out_on_the_command_line(tmp_path):
    command = [
        sys.executable,
        "-m",
        "ninfer_tools",
        "inspect",
        "--objects",
        str(save_small(tmp_path)),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "resource/text/chat_template.jinja",
        "weight/000000",
        "auxiliary/000000",
    ]


def test_error_reaches_the_shell_as_one_line_and_a_code(tmp_path):
    path = save(tmp_path / "model.gguf", b"GGUF" + bytes(100))
    done = subprocess.run(
        [sys.executable, "-m", "ninfer_tools", "inspect", str(path)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_source_is_a_file_or_a_specification(tmp_path):
    assert open_source(save_small(tmp_path), None, 2**20).version == 3
    made_up = open_source(None, "qwen3.5-0.8b:bf16:layers=1:vocab=600:components=text", 2**20)
    assert "text/token_embedding" in made_up.bindings
