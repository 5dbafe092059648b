"""Laws of `ninfer demo`: a path alone on standard output, or what the checkpoint is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("arguments", "part", "file"),
    [
        (["--path"], "checkpoint", "model.safetensors.index.json"),
        (["--path", "checkpoint"], "checkpoint", "chat_template.jinja"),
        (["dflash2", "--path"], "dflash2", "model.safetensors"),
    ],
)
def test_path_stands_alone_and_the_folder_is_there(demo, arguments, part, file):
    answer = demo(*arguments)
    assert (answer.code, answer.err) == (0, "")
    folder = Path(answer.out.removesuffix("\n"))
    assert folder.is_absolute() and folder.name == part
    assert (folder / file).is_file()


def test_json_path_names_the_same_folder(demo):
    assert demo("--path", "dflash2", "--json").record == {
        "part": "dflash2",
        "path": demo("--path", "dflash2").out.strip(),
    }


def test_overview_unpacks_nothing_and_says_where_it_would_lie(demo, tmp_path):
    before = demo()
    assert before.code == 0 and not (tmp_path / "cache").exists()
    assert "not yet unpacked; goes to" in before.out
    folder = Path(demo("--path").out.strip()).parent
    assert str(folder) in before.out
    assert f"in {folder}" in demo().out and "not yet" not in demo().out


def test_overview_shows_sizes_scores_and_acceptance(demo):
    out = demo().out
    assert "16.18 M parameters" in out and "3.27 M parameters" in out
    assert "transformers 5.17.0 on the 9,900 bundled items" in out
    (row,) = [line.split() for line in out.splitlines() if "toolresult/think" in line]
    assert row == ["toolresult/think", "98.3%", "98.7%"]
    assert "MTP, of 3      code 2.68, chat 2.82" in out
    assert "DFlash2, of 7  code 4.37, chat 5.74, a round" in out


def test_json_overview_holds_hashes_scores_and_metrics(demo):
    record = demo("--json").record
    assert record["parts"]["dflash2"]["files"].keys() == {"config.json", "model.safetensors"}
    assert record["scores"]["float32"]["needle/no_think"] == 1.0
    assert record["metrics"]["checkpoint"]["evaluation"]["heldout_code"]["ppl"] == 5.347
    assert record["unpacked"]["complete"] is False


@pytest.mark.parametrize("arguments", [["drafter"], ["--path", "drafter"]])
def test_unknown_part_is_bad_usage(demo, arguments):
    answer = demo(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1 and "got drafter, want checkpoint or dflash2" in answer.err


def test_unwritable_cache_is_one_line_of_bad_usage(demo, tmp_path):
    (tmp_path / "cache").write_text("a file")
    answer = demo("--path")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1 and "set XDG_CACHE_HOME" in answer.err


def test_overview_needs_neither_torch_nor_zstandard():
    program = (
        "import sys; from ninfer_tools.demo.command import run;"
        "run(part='checkpoint', path=False, json_output=True);"
        "print({'torch', 'zstandard', 'numpy'} & sys.modules.keys(), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "set()\n")
