"""`ninfer convert --calibrate` and `--calibration`, from options to artifact and report."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from builders.checkpoints import build_checkpoint
from builders.conversions import convert, converted, read_report
from ninfer_formats.directory import ALLOW_A4, INPUT_DIVISOR
from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.convert import execution
from ninfer_tools.convert.calibration import forward, model_parts, order

ROOT = Path(__file__).parents[4]
TEXT = "The text of a calibration: words, 12 numbers and some more words.\n" * 3
UP, DOWN = "text/layers/0/mlp/up", "text/layers/0/mlp/down"
PRODUCT = "text/layers/0/mlp/product"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def out(tmp_path):
    (tmp_path / "o").mkdir()
    return tmp_path / "o" / "a.ninfer"


def checkpoint(tmp_path, **options):
    return build_checkpoint(**{"vision": False, **options}).write(tmp_path / "m")


def saved(out):
    return out.with_name(out.name + ".calibration.json")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def divisors_of(artifact):
    """Return (parameter, input) -> stored divisor."""
    found = {}
    for use in artifact.uses:
        bound = use.auxiliaries.get(INPUT_DIVISOR)
        if bound is not None:
            assert use.activation_policy == ALLOW_A4
            words = artifact.payload_of(bound.parts[0].object).copy()
            found[use.parameter, use.input] = words.view("<f4")[0]
    return found


def largest_of(path):
    record = json.loads(path.read_text())
    return {
        (name, site): value
        for name, item in record["projections"].items()
        for site, value in item["largest_input"].items()
    }


def test_nvfp4_products_get_the_divisors_of_the_saved_file(tmp_path, text, out):
    """V-108, V-113, V-114 and V-115: the file, the artifact and the report agree."""
    artifact = converted(checkpoint(tmp_path), out, calibrate=text)
    assert names(out.parent) == ["a.ninfer", "a.ninfer.calibration.json",
                                 "a.ninfer.conversion.json"]  # fmt: skip
    found, largest = divisors_of(artifact), largest_of(saved(out))
    assert (DOWN, PRODUCT) in found
    for use, divisor in found.items():
        assert divisor == np.float32(2688) / np.float32(largest[use])
    report = read_report(out)
    assert {(a["parameter"], a["input"]) for a in report["activations"]} == {
        (use.parameter, use.input) for use in artifact.uses
    }
    for item in report["activations"]:
        divisor = found.get((item["parameter"], item["input"]))
        assert item["divisor"] == divisor
        assert item["from"] == ("none" if divisor is None else "calibrated")
        assert (item["policy"] == ALLOW_A4) == (divisor is not None)
    assert report["divisors"] == {
        "source": 0, "calibrated": len(found), "recipe": 0, "none": 0
    }  # fmt: skip
    assert report["calibration"]["file"] == str(saved(out))


def test_saved_calibration_gives_the_same_artifact(tmp_path, text, out):
    """V-110 and V-111: byte for byte; other numbers give other bytes."""
    folder = checkpoint(tmp_path, moe=True)
    converted(folder, out, calibrate=text)
    again = tmp_path / "b.ninfer"
    artifact = converted(folder, again, calibration=saved(out))
    assert again.read_bytes() == out.read_bytes()
    assert not saved(again).exists()
    assert artifact.provenance["calibration"] == {
        "sha256": read_report(out)["calibration"]["sha256"]
    }
    record = json.loads(saved(out).read_text())
    record["projections"]["text/layers/0/moe/shared/up"]["largest_input"] = {
        "text/layers/0/ffn_input": 4.0
    }
    other = tmp_path / "other.json"
    other.write_text(json.dumps(record))
    changed = converted(folder, tmp_path / "c.ninfer", calibration=other)
    assert divisors_of(changed)["text/layers/0/moe/shared/up", "text/layers/0/ffn_input"] == 672
    assert changed.prefix.artifact_id != artifact.prefix.artifact_id


def test_equal_runs_save_equal_files(tmp_path, text, out):
    """V-109: nothing in it tells time, folder or machine."""
    folder = checkpoint(tmp_path)
    converted(folder, out, calibrate=text)
    converted(folder, tmp_path / "b.ninfer", calibrate=text)
    assert saved(out).read_bytes() == saved(tmp_path / "b.ninfer").read_bytes()


def test_without_calibration_nothing_has_four_bit_activations(tmp_path, out):
    """V-115: the report says none of everything."""
    artifact = converted(checkpoint(tmp_path), out)
    report = read_report(out)
    assert not divisors_of(artifact) and "calibration" not in report
    assert {item["from"] for item in report["activations"]} == {"none"}
    assert report["divisors"]["none"] > 0


def test_divisors_of_the_source_are_kept(tmp_path, text, out):
    """V-114: MLPs stored as NVFP4 keep theirs, mixers encoded here get calibrated ones."""
    folder = checkpoint(
        tmp_path, form="ct_nvfp4", quantise=lambda n: ".mlp." in n and "mtp" not in n
    )
    before = divisors_of(converted(folder, tmp_path / "plain.ninfer"))
    after = divisors_of(converted(folder, out, calibrate=text))
    assert before and before.items() <= after.items()
    origin = {(a["parameter"], a["input"]): a["from"] for a in read_report(out)["activations"]}
    assert {origin[use] for use in before} == {"source"}
    assert {origin[use] for use in after.keys() - before.keys()} == {"calibrated"}
    counts = read_report(out)["divisors"]
    assert (counts["source"], counts["calibrated"]) == (len(before), len(after) - len(before))


def test_recipe_goes_before_the_calibration(tmp_path, text, out):
    """V-114 and V-84: its divisor replaces the calibrated one, its policy drops it."""
    recipe = tmp_path / "r.py"
    recipe.write_text(
        "def configure(model, recipe, sources):\n"
        f"    recipe.use({DOWN!r}, {PRODUCT!r}, activation_input_divisor=42.0)\n"
        f"    recipe.assign({UP!r}, activation_policy='A16Only')\n"
        "    recipe.assign('text/layers/0/gdn/z', activation_policy='AllowA4')\n"
    )
    artifact = converted(checkpoint(tmp_path), out, calibrate=text, recipe=str(recipe))
    found = divisors_of(artifact)
    assert found[DOWN, PRODUCT] == 42
    assert not [use for use in found if use[0] == UP]
    assert ("text/layers/0/gdn/z", "text/layers/0/mixer_input") in found
    origins = {a["parameter"]: a["from"] for a in read_report(out)["activations"]}
    assert (origins[DOWN], origins[UP]) == ("recipe", "none")
    assert origins["text/layers/0/gdn/z"] == "calibrated"


def test_only_nvfp4_weights_take_divisors(tmp_path, text, out):
    """V-114 and V-116: with a profile without NVFP4 the file is made and a notice says so."""
    artifact = converted(checkpoint(tmp_path), out, calibrate=text, profile="fp8")
    assert not divisors_of(artifact) and saved(out).exists()
    assert "no product takes a calibrated divisor" in read_report(out)["notices"][-1]
    again = converted(checkpoint(tmp_path), tmp_path / "b.ninfer", calibration=saved(out))
    assert divisors_of(again)


def test_proposal_head_takes_the_measure_of_the_output_head(tmp_path, text, out):
    """V-105."""
    options = {"calibrate": text, "proposal_rows": 128, "rules": ["proposal/head=nvfp4"]}
    artifact = converted(checkpoint(tmp_path), out, **options)
    site = "mtp/final_hidden"
    want = np.float32(2688) / np.float32(largest_of(saved(out))["text/output_head", site])
    assert divisors_of(artifact)["proposal/head", site] == want


def test_experts_without_tokens_are_named_in_a_notice(tmp_path, text, out):
    """V-104 and V-116: one token leaves two of four experts of a layer without a divisor."""
    folder = checkpoint(tmp_path, moe=True, mtp=False)
    rules = ["text/*/experts/*=nvfp4"]
    artifact = converted(folder, out, calibrate=text, calibration_tokens=1, rules=rules)
    found = divisors_of(artifact)
    experts = [use for use in found if "/experts/" in use[0]]
    assert len(experts) == 2 * 2 * 3
    notice = read_report(out)["notices"][-1]
    assert notice.startswith("12 projections got no input from the calibration text")
    idle = {name for name, _ in largest_of(saved(out))} - {name for name, _ in found}
    idle = {name for name in idle if "/experts/" in name}
    assert len(idle) == 12 and any(name in notice for name in idle)


def test_dry_run_prints_the_need_and_runs_nothing(tmp_path, text, out, capsys, monkeypatch):
    """V-107: the size is that of the artifact with every divisor."""
    monkeypatch.setattr(forward, "measure_inputs", lambda *_: pytest.fail("it ran"))
    folder = checkpoint(tmp_path)
    options = {"calibrate": text, "calibration_tokens": 20}
    assert convert(folder, out, dry_run=True, json_output=True, **options) == 0
    record = json.loads(capsys.readouterr().out)
    run = record["calibration"]["to_run"]
    assert run["tokens"] == 20 and run["memory_bytes"] > 100 << 20
    assert convert(folder, out, dry_run=True, **options) == 0
    printed = capsys.readouterr().out
    assert "calibration would run up to 20 tokens" in printed and "memory needed: about" in printed
    assert names(out.parent) == []
    monkeypatch.undo()
    converted(folder, out, **options)
    assert out.stat().st_size == record["bytes"]
    assert "20 tokens in 1 sequences on cpu; it needs about" in capsys.readouterr().err


def test_dry_run_with_a_saved_calibration_compares_headers(tmp_path, text, out):
    """V-110: weights are not read for it."""
    folder = checkpoint(tmp_path)
    converted(folder, out, calibrate=text)
    assert convert(folder, tmp_path / "b", dry_run=True, calibration=saved(out)) == 0
    other = build_checkpoint(vision=False, tied=True).write(tmp_path / "other")
    assert convert(other, tmp_path / "b", dry_run=True, calibration=saved(out)) == 1


def test_calibration_of_other_weights_is_one_line(tmp_path, text, out, capsys):
    """V-110."""
    converted(checkpoint(tmp_path), out, calibrate=text)
    other = build_checkpoint(vision=False, seed=5).write(tmp_path / "other")
    capsys.readouterr()
    assert convert(other, tmp_path / "b.ninfer", calibration=saved(out)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "another checkpoint as base" in line and "--calibrate" in line
    assert not (tmp_path / "b.ninfer").exists()


def test_calibration_without_mtp_does_not_serve_a_conversion_with_it(tmp_path, text, out, capsys):
    """V-110, and the other way round it does."""
    folder = checkpoint(tmp_path)
    converted(folder, out, calibrate=text, components="text")
    assert convert(folder, tmp_path / "b.ninfer", calibration=saved(out)) == 1
    assert "calibration lacks" in capsys.readouterr().err
    whole = tmp_path / "c.ninfer"
    converted(folder, whole, calibrate=text)
    options = {"calibration": saved(whole), "components": "text"}
    assert divisors_of(converted(folder, tmp_path / "d.ninfer", **options))


def test_broken_calibration_file_is_refused_before_anything(tmp_path, out):
    """V-109."""
    broken = tmp_path / "c.json"
    broken.write_text('{"format": "ninfer-calibration", "version": NaN}')
    with pytest.raises(NinferError, match="not finite"):
        convert(tmp_path / "no such checkpoint", out, calibration=broken)


def test_options_that_contradict_each_other_are_refused(tmp_path, text, out):
    """V-100."""
    folder = checkpoint(tmp_path)
    for options in (
        {"calibrate": text, "calibration": text},
        {"calibration_tokens": 5},
        {"calibrate": text, "calibration_tokens": 0},
        {"calibrate": text, "calibration_tokens": (1 << 20) + 1},
        {"calibrate": tmp_path / "none.txt"},
    ):
        with pytest.raises(UsageError):
            convert(folder, out, **options)
    with pytest.raises(UsageError, match="the output is the file of --calibrate"):
        convert(folder, text, calibrate=text, force=True)
    assert names(out.parent) == [] and text.read_text() == TEXT


def test_calibration_that_exists_is_not_overwritten_without_force(tmp_path, text, out):
    """V-108."""
    folder = checkpoint(tmp_path)
    saved(out).write_text("precious")
    with pytest.raises(UsageError, match=r"--calibration .*or replace it with --force"):
        convert(folder, out, calibrate=text)
    assert saved(out).read_text() == "precious"
    converted(folder, out, calibrate=text, force=True)
    assert largest_of(saved(out))


def test_resumed_run_takes_the_calibration_that_was_saved(tmp_path, text, out, monkeypatch):
    """V-108 and V-112: killed while encoding; the text is not run again."""
    folder = checkpoint(tmp_path)
    finish, done = execution._Run._finish, []

    def stop(self, parent, record):
        finish(self, parent, record)
        done.append(parent.id)
        if len(done) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(execution._Run, "_finish", stop)
    monkeypatch.setattr(execution, "SYNC_BYTES", 0)
    with pytest.raises(KeyboardInterrupt):
        convert(folder, out, calibrate=text)
    assert names(out.parent) == [".a.ninfer.ninfer-convert", "a.ninfer.calibration.json"]
    monkeypatch.undo()
    other = tmp_path / "other.txt"
    other.write_text("another text")
    with pytest.raises(UsageError, match="another text"):
        convert(folder, out, calibrate=other, resume=True)
    before = saved(out).read_bytes()
    monkeypatch.setattr(forward, "measure_inputs", lambda *_: pytest.fail("it ran"))
    assert convert(folder, out, calibrate=text, resume=True) == 0
    assert saved(out).read_bytes() == before
    again = tmp_path / "b.ninfer"
    converted(folder, again, calibration=saved(out))
    assert again.read_bytes() == out.read_bytes()


def test_interruption_while_the_text_runs_leaves_nothing(tmp_path, text, out):
    """V-108: Ctrl-C as the process gets it, in the middle of a layer."""
    folder = checkpoint(tmp_path)
    program = f"""
import os, signal, sys
sys.path[:0] = [{str(ROOT)!r} + "/tests", {str(ROOT)!r}]
from ninfer_tools.convert.calibration import observation
add = observation.Maxima.add
def stop(self, products, inputs):
    add(self, products, inputs)
    if "text/layers/1/" in str(products):
        os.kill(os.getpid(), signal.SIGINT)
observation.Maxima.add = stop
from ninfer_tools.entry_point import main
sys.argv[1:] = ["convert", {str(folder)!r}, "--out", {str(out)!r}, "--calibrate", {str(text)!r},
                "--device", "cpu"]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 128 + signal.SIGINT
    assert "interrupted while the calibration ran; nothing was saved" in done.stderr
    assert "Traceback" not in done.stderr
    assert names(out.parent) == []


@pytest.mark.parametrize("owner", [order.os, order.Path])
def test_disk_that_is_full_leaves_no_half_file(tmp_path, text, out, monkeypatch, owner):
    """V-108: neither when the bytes do not fit nor when the name does not."""

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owner, "fsync" if owner is order.os else "replace", fail)
    with pytest.raises(NinferError, match="calibration was not saved: No space left"):
        convert(checkpoint(tmp_path), out, calibrate=text)
    assert names(out.parent) == []


def test_missing_library_is_one_line_with_the_command(tmp_path, text, out, monkeypatch):
    def absent(name):
        raise ImportError("No module named 'transformers'")

    monkeypatch.setattr(model_parts, "import_module", absent)
    with pytest.raises(UsageError, match="calibration needs transformers") as caught:
        convert(checkpoint(tmp_path), out, calibrate=text)
    assert "pip install 'ninfer[calibrate]'" in str(caught.value)
    assert names(out.parent) == []


def test_memory_that_runs_out_is_one_line(tmp_path, text, out, monkeypatch):
    def exhausted(*_):
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(forward, "read_weights", exhausted)
    with pytest.raises(NinferError, match="not enough memory on cpu"):
        convert(checkpoint(tmp_path), out, calibrate=text)


def test_nothing_loads_transformers_without_calibration(tmp_path, out):
    program = (
        "import sys, ninfer_tools.cli, ninfer_tools.convert.command;"
        "print([n for n in ('torch', 'transformers', 'tokenizers') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_corpus_of_a_ranking_is_counted_once(tmp_path, text, out, monkeypatch):
    """The plan is made before and after the text is run; counting may take long."""
    from ninfer_tools.convert import proposal

    counted, count = [], proposal.count_tokens
    monkeypatch.setattr(
        proposal, "count_tokens", lambda *given: (counted.append(1), count(*given))[1]
    )
    options = {"ranking_corpus": [str(text)], "proposal_rows": 128, "calibrate": text}
    converted(checkpoint(tmp_path), out, **options)
    assert len(counted) == 1
