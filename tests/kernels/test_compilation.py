"""Every kernel compiles ahead of time without a GPU, spills nothing and stays under its cap."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ninfer_kernels.tuning as tuning_module
from ninfer_kernels.tuning import Place, Tuning, find_tuning

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "compile_all.py"
MODULES = sorted(
    ".".join(path.relative_to(ROOT / "kernels").with_suffix("").parts)
    for path in (ROOT / "kernels" / "ninfer_kernels").glob("*/kernel*.py")
)


def compile_all(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT / "kernels")
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_every_default_and_tuned_configuration_compiles():
    """Defaults for all six architectures, tuned ones for theirs; kept by source hash."""
    done = compile_all("--fast")
    assert done.returncode == 0, done.stdout + done.stderr
    operations = {line.split()[0] for line in done.stdout.splitlines()[1:-1]}
    assert operations == {module.split(".")[1] for module in MODULES}
    count = re.search(r"(\d+) compilations, \d+ fresh, 0 failed", done.stdout)
    assert count and int(count[1]) == count_fast_jobs()


def count_fast_jobs() -> int:
    jobs = 0
    for name in MODULES:
        every = importlib.import_module(name).COMPILATIONS
        defaults = {c.kernel.__name__: c for c in reversed(every) if not c.tuned}
        for compilation in defaults.values():
            wanted = {a for c in every if c.kernel is compilation.kernel for a in c.architectures}
            assert wanted == {80, 86, 89, 90, 100, 120}, compilation.name
        jobs += sum(len(c.architectures) for c in defaults.values())
        jobs += sum(len(c.architectures) for c in every if c.tuned)
    return jobs


@pytest.mark.parametrize("name", MODULES)
def test_tuned_entries_are_compiled_for_their_own_architecture(name):
    module = importlib.import_module(name)
    tuned = [compilation for compilation in module.COMPILATIONS if compilation.tuned]
    table = getattr(module, "TUNED", {})
    assert bool(tuned) == bool(table)
    for place, tuning in table.items():
        fits = [
            c
            for c in tuned
            if c.architectures == (place.architecture,)
            and (c.num_warps, c.num_stages) == (tuning.num_warps, tuning.num_stages)
            and c.options.get("maxnreg") == tuning.max_registers
            and all(str(part) in c.name for part in place.shape)
        ]
        assert fits, place


def test_tuning_is_that_of_the_longest_known_shape(monkeypatch):
    table = {
        Place(90, ("a",)): Tuning(2, 3),
        Place(90, ("a", 5, 7)): Tuning(8, 1),
        Place(80, ("b",)): Tuning(1, 1),
    }
    device, default = torch.device("cuda", 0), Tuning(4, 2)
    monkeypatch.setattr(tuning_module, "_architecture", lambda index: 90)
    assert find_tuning(table, device, ("a", 5, 7), default) == Tuning(8, 1)
    assert find_tuning(table, device, ("a", 5, 8), default) == Tuning(2, 3)
    assert find_tuning(table, device, ("b", 5, 7), default) == default
    assert find_tuning(table, torch.device("cpu"), ("a", 5, 7), default) == default


def test_a_triton_that_cannot_be_had_is_one_line():
    done = compile_all("--triton", "0.0.1", "--only", "swiglu", "--no-cache")
    assert done.returncode == 2
    assert done.stderr.startswith("triton 0.0.1: not installed and pip gives none (")
    assert len(done.stderr.splitlines()) == 1


def test_unchanged_sources_are_not_compiled_again(tmp_path):
    cache = tmp_path / "results.json"
    arguments = ("--only", "swiglu", "--architectures", "90", "--cache", str(cache))
    assert "1 fresh, 0 failed" in compile_all(*arguments).stdout
    assert "0 fresh, 0 failed" in compile_all(*arguments).stdout


def test_unknown_operation_is_a_failure():
    """A typing error must not pass for a green table."""
    done = compile_all("--only", "swigul", "--no-cache")
    assert done.returncode == 1


@pytest.mark.parametrize("name", MODULES)
def test_compilations_name_every_argument_once(name):
    """A signature that lost an argument would compile another kernel than the one launched."""
    compilations = importlib.import_module(name).COMPILATIONS
    assert compilations
    names = [compilation.name for compilation in compilations]
    assert len(names) == len(set(names))
    for compilation in compilations:
        given = [*compilation.signature, *compilation.constants]
        assert sorted(given) == sorted(compilation.kernel.arg_names)
        assert set(compilation.divisible) <= set(compilation.signature)
        assert min(compilation.architectures) >= 80
