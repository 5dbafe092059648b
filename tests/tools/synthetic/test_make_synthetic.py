"""The script: one output, one line per error, exit codes 0, 1, 2 and 130."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ninfer_formats.output_target import OutputTarget
from ninfer_formats.reader import open_artifact
from ninfer_tools.synthetic import artifact as synthetic

SCRIPT = Path(__file__).parents[3] / "scripts" / "make_synthetic.py"
SPEC = "qwen3.5-0.8b:nvfp4:layers=1:vocab=600:components=text"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_synthetic", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(script, capsys, *arguments) -> tuple[int, str, str]:
    try:
        code = script.main([str(item) for item in arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_script_runs_from_any_folder(tmp_path):
    command = [sys.executable, SCRIPT, SPEC, "--artifact", "x.ninfer", "--threads", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("wrote x.ninfer: ") and "GB/s" in done.stdout
    assert open_artifact(tmp_path / "x.ninfer").version == 3


def test_options_override_seed_and_file_size(script, capsys, tmp_path):
    path = tmp_path / "x.ninfer"
    options = ("--seed", 7, "--max-file-bytes", 6_000_000)
    code, _, _ = run(script, capsys, f"{SPEC}:seed=5", "--artifact", path, *options)
    assert code == 0
    assert open_artifact(path).provenance["synthetic"].split(":")[3] == "seed=7"
    sizes = [item.stat().st_size for item in tmp_path.iterdir()]
    assert len(sizes) > 1 and max(sizes) <= 6_000_000


def test_checkpoint_is_written_to_a_folder(script, capsys, tmp_path):
    spec = "qwen3.5-0.8b:nvfp4:layers=1:vocab=600:components=text"
    code, out, err = run(script, capsys, spec, "--checkpoint", tmp_path / "model")
    assert (code, err) == (0, "") and "wrote" in out
    assert (tmp_path / "model" / "config.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((SPEC,), "--artifact --checkpoint is required"),
        ((SPEC, "--artifact", "a", "--checkpoint", "b"), "not allowed with"),
        ((SPEC, "--checkpoint", "b", "--container", "2"), "go with --artifact"),
        ((SPEC, "--artifact", "a", "--container", "1"), "invalid choice"),
        ((SPEC, "--artifact", "a", "--threads", "0"), "--threads"),
        ((SPEC, "--artifact", "a", "--seed", "-1"), "key seed"),
        (("qwen3.5-0.8b:q3", "--artifact", "a"), "unknown profile"),
        (("qwen9:nvfp4", "--artifact", "a"), "unknown model"),
        ((SPEC, "--artifact", "a", "--container", "2"), "no version 2 contract"),
        ((SPEC, "--artifact", "a", "--device", "tpu"), "unknown device"),
        ((SPEC, "--artifact", "missing/a"), "does not exist"),
        ((SPEC, "--artifact", "."), "not a file name"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(script, capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(script, capsys, *arguments)
    assert (code, out) == (2, "") and words in err
    assert err.count("\n") == 1 and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_existing_output_needs_force(script, capsys, tmp_path):
    path = tmp_path / "x.ninfer"
    path.write_text("mine")
    assert run(script, capsys, SPEC, "--artifact", path)[0] == 2
    assert path.read_text() == "mine"
    assert run(script, capsys, SPEC, "--artifact", path, "--force")[0] == 0
    assert open_artifact(path).version == 3


def test_full_disk_is_refused(script, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(OutputTarget, "free_bytes", lambda self: 1000)
    code, _, err = run(script, capsys, SPEC, "--artifact", tmp_path / "x.ninfer")
    assert code == 2 and "not enough free disk space" in err and err.count("\n") == 1


def test_interrupt_is_one_line_and_leaves_nothing(script, capsys, tmp_path, monkeypatch):
    def interrupt(plan, threads):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(synthetic, "_draw_on_cpu", interrupt)
    code, _, err = run(script, capsys, SPEC, "--artifact", tmp_path / "x.ninfer")
    assert code == 130 and err == "interrupted; no output was left behind\n"
    assert list(tmp_path.iterdir()) == []
