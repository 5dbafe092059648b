"""Every kernel compiles ahead of time without a GPU, spills nothing and stays under its cap."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_default_configuration_of_every_kernel_compiles():
    done = compile_all("--fast", "--architectures", "80,90", "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr
    operations = {line.split()[0] for line in done.stdout.splitlines()[1:-1]}
    assert operations == {module.split(".")[1] for module in MODULES}
    count = re.search(r"(\d+) compilations, (\d+) fresh, 0 failed", done.stdout)
    assert count and count[1] == count[2]


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
