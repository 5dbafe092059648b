"""Laws of `ninfer doctor`: what it finds, what it says to do, and its exit code."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from builders.edited_artifacts import save_v3, v3_root
from ninfer_formats.errors import UsageError
from ninfer_tools.doctor import command
from ninfer_tools.doctor.artifact_fit import Plan
from ninfer_tools.doctor.checks import NOTICE, OK, PROBLEM, check_machine
from ninfer_tools.doctor.facts import (
    Facts,
    Gpu,
    Torch,
    find_pin,
    probe_torch,
    read_driver,
    read_probe,
)

ROOT = Path(__file__).parents[3]
GIB = 1 << 30
H200 = Gpu("NVIDIA H200", (9, 0), 138 * GIB, 140 * GIB)
HEALTHY = Facts(
    python="3.12.1",
    torch=Torch("2.13.0", "13.0", (H200,)),
    triton="3.6.0",
    wants_triton="3.6.0",
    driver="580.1",
    cards=("NVIDIA H200",),
    compiler="/usr/bin/gcc",
    headers=True,
    cache=Path("/home/me/.triton/cache"),
    cache_writable=True,
    disk_free=100 * GIB,
    memory_free=64 * GIB,
)
NO_GPU = replace(HEALTHY, torch=Torch("2.13.0+cpu"), driver=None, cards=())


def states(facts):
    return {check.name: check.state for check in check_machine(facts)}


def worst(facts):
    """The first problem of a machine."""
    return next(check for check in check_machine(facts) if check.state == PROBLEM)


def test_healthy_machine_has_nothing_to_do():
    checks = check_machine(HEALTHY)
    assert {check.state for check in checks} == {OK}
    assert not [check for check in checks if check.remedy]
    assert any("NVIDIA H200, sm_90" in check.text and "580.1" in check.text for check in checks)


@pytest.mark.parametrize(
    ("change", "name", "said", "remedy"),
    [
        ({"torch": None}, "torch", "not installed", "pip install 'ninfer[serve]'"),
        ({"torch": Torch("2.13.0", failure="libcudart.so.13: cannot open")}, "torch",
         "libcudart.so.13", "--force-reinstall"),
        ({"torch": Torch("2.13.0+cpu")}, "GPU", "built for processors only", "--device cpu"),
        ({"torch": Torch("2.13.0", "13.0")}, "GPU", "CUDA 13.0 cannot use it", "update the NVIDIA"),
        ({"torch": Torch("2.13.0", "13.0", (replace(H200, name="T4", capability=(7, 5)),))},
         "GPU", "T4: this GPU is not supported", "--device cpu"),
        ({"triton": None}, "triton", "not installed", "pip install 'ninfer[serve]'"),
        ({"compiler": None}, "compiler", "no C compiler", "apt install gcc"),
        ({"headers": False}, "compiler", "no Python headers", "python3-dev"),
        ({"cache_writable": False}, "cache", "cannot be written", "TRITON_CACHE_DIR"),
    ],
)  # fmt: skip
def test_what_keeps_a_gpu_from_running_is_a_problem_with_a_way_out(change, name, said, remedy):
    """MEM-18."""
    found = worst(replace(HEALTHY, **change))
    assert found.name == name and said in found.text and remedy in (found.remedy or "")


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"triton": None},
        {"compiler": None},
        {"headers": False},
        {"cache_writable": False},
        {"memory_free": None},
    ],
)
def test_machine_without_a_gpu_needs_only_torch(change):
    found = states(replace(NO_GPU, **change))
    assert PROBLEM not in found.values() and found["GPU"] == NOTICE


def test_mismatched_triton_and_little_disk_are_notices():
    found = {c.name: c for c in check_machine(replace(HEALTHY, triton="3.7.1", disk_free=1000))}
    assert found["triton"].state == NOTICE and "triton==3.6.0" in (found["triton"].remedy or "")
    assert found["disk"].state == NOTICE


def diagnose(capsys, facts, file=None, json_output=False, **options):
    code = command.run(
        file=file, max_directory_bytes=1 << 28, json_output=json_output,
        gather=lambda: facts, plan=Plan(**options),
    )  # fmt: skip
    return code, capsys.readouterr().out


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The directory of a 27B artifact over holes: 15 GiB of weights."""
    root = v3_root("qwen3.8-27b", components=("text", "vision", "mtp"))
    return save_v3(tmp_path_factory.mktemp("models") / "27b.ninfer", root)


def test_artifact_that_fits_is_ready(capsys, model):
    code, out = diagnose(capsys, HEALTHY, model)
    assert code == 0 and out.splitlines()[-1] == "ready"
    assert "whole" in out and "NVIDIA H200, 8192 tokens of context" in out


def test_artifact_that_does_not_fit_names_the_largest_setting_that_does(capsys, model):
    """MEM-8, MEM-9."""
    small = replace(HEALTHY, torch=Torch("2.13.0", "13.0", (replace(H200, free=20 * GIB),)))
    code, out = diagnose(capsys, small, model, max_context=262144, json_output=True)
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert code == 1 and checks["fit"]["state"] == PROBLEM
    assert f"{20 * GIB} (20.00 GiB) are free" in checks["fit"]["text"]
    context = int(checks["fit"]["remedy"].partition("--max-context ")[2].split()[0])
    assert 0 < context < 262144
    assert diagnose(capsys, small, model, max_context=context)[0] == 0
    assert diagnose(capsys, small, model, max_context=context + 64)[0] == 1


def fits(capsys, facts, model, **options):
    _, out = diagnose(capsys, facts, model, json_output=True, **options)
    return [check for check in json.loads(out)["checks"] if check["name"] in ("fit", "drafts")]


def needed(check):
    return int(check["text"].partition("needs ")[2].split()[0])


def test_fit_counts_the_components_that_are_asked_for(capsys, model):
    """MEM-2: without the tower less, with drafts more, and drafts are looked at unasked."""
    plain, drafted = fits(capsys, HEALTHY, model)
    assert drafted["text"].startswith("--spec mtp: ") and needed(drafted) > needed(plain)
    assert needed(fits(capsys, HEALTHY, model, vision=False)[0]) < needed(plain)
    (asked,) = fits(capsys, HEALTHY, model, spec="mtp")
    assert needed(asked) == needed(drafted) and "with text, mtp, vision" in asked["text"]
    assert needed(fits(capsys, HEALTHY, model, spec="mtp", draft_tokens=7)[0]) > needed(asked)


def test_every_gpu_is_looked_at(capsys, model):
    """A second GPU that has room is the way out when the first has none."""
    full = replace(H200, free=GIB)
    both = replace(HEALTHY, torch=Torch("2.13.0", "13.0", (full, H200)))
    code, out = diagnose(capsys, both, model)
    first, second, _ = fits(capsys, both, model)
    assert (code, out.splitlines()[-1]) == (0, "ready")
    assert first["state"] == NOTICE and first["remedy"].startswith("--device cuda:1; ")
    assert second["state"] == OK and second["text"].startswith("--device cuda:1: ")
    worse = replace(HEALTHY, torch=Torch("2.13.0", "13.0", (full, full)))
    assert diagnose(capsys, worse, model)[0] == 1


def test_components_that_are_not_there_are_said(capsys, model, tmp_path):
    root = v3_root("qwen3.8-27b", components=("text",), layers=4, rows=None)
    bare = save_v3(tmp_path / "bare.ninfer", root)
    for options, said in (({"spec": "mtp"}, "no MTP head"), ({"vision": True}, "no vision tower")):
        (found,) = fits(capsys, HEALTHY, bare, **options)
        assert (found["state"], said in found["text"]) == (PROBLEM, True)
    assert len(fits(capsys, HEALTHY, bare)) == 1
    with pytest.raises(UsageError, match="use --spec mtp"):
        diagnose(capsys, HEALTHY, model, spec="dflash2")


def test_fit_on_a_processor_counts_decoded_weights(capsys, model):
    """MEM-2: 27e9 values of four bytes do not fit 64 GiB, whatever their stored format."""
    code, out = diagnose(capsys, NO_GPU, model)
    assert code == 1 and "no context fits" in out and "processor" in out


def test_context_beyond_the_model_is_said(capsys, model):
    code, out = diagnose(capsys, HEALTHY, model, max_context=1 << 20)
    assert code == 1 and "--max-context 262144" in out


def test_damaged_artifact_is_a_problem_that_names_everything(capsys, tmp_path):
    root = v3_root("qwen3.8-27b", components=("text",), layers=4, rows=None)
    lost = ("text/final_norm", "text/layers/0/input_norm")
    for name in lost:
        del root["bindings"][name]
    code, out = diagnose(capsys, HEALTHY, save_v3(tmp_path / "a.ninfer", root))
    assert code == 1 and all(name in out for name in lost)


def test_unknown_cache_type_is_bad_usage(capsys, model):
    with pytest.raises(UsageError, match="KV type"):
        diagnose(capsys, HEALTHY, model, kv_dtype="q2")


def test_answers_of_the_system_are_read():
    text = "NVIDIA H200, 580.1, 9.0, 143771, 143000\nNVIDIA H200, 580.1, 9.0, 143771, 9\n"
    assert read_driver(text) == ("580.1", ("NVIDIA H200",) * 2)
    assert read_driver("") == (None, ())
    wanted = ["filelock", 'triton==3.6.0; platform_system == "Linux"', "triton-lang==9"]
    assert find_pin(wanted) == "3.6.0" and find_pin(["numpy>=1", "triton>=3"]) is None


def test_answers_of_the_probe_are_read():
    device = {"name": "X", "capability": [8, 9], "free": 5, "total": 7}
    answer = json.dumps({"cuda": "13.0", "devices": [device]})
    found = read_probe("2.13.0", 0, f"a warning\n{answer}\n", "")
    assert found == Torch("2.13.0", "13.0", (Gpu("X", (8, 9), 5, 7),))
    broken = read_probe("2.13.0", 1, "", "Traceback\nImportError: libcudart.so.13\n\n")
    assert broken.failure == "ImportError: libcudart.so.13"
    assert read_probe("2.13.0", -11, "", "").failure == "it ended with code -11"


def test_torch_is_looked_at_from_outside():
    found = probe_torch()
    assert found is not None and found.failure is None


def test_command_works_without_torch_and_within_ten_seconds():
    """A path hook hides torch and triton, as on a machine that does not have them."""
    program = (
        "import sys, importlib.metadata as m\n"
        "real = m.version\n"
        "def version(name):\n"
        "    if name in ('torch', 'triton'): raise m.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "m.version = version\n"
        "sys.modules['torch'] = sys.modules['triton'] = None\n"
        "sys.argv = ['ninfer', 'doctor', '--json']\n"
        "from ninfer_tools.entry_point import main\n"
        "sys.exit(main())\n"
    )
    paths = [str(ROOT / name) for name in ("", "formats", "kernels", "runtime")]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths}\n{program}"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert "not installed" in checks["torch"]["text"]
    assert time.monotonic() - began < 10
