"""Laws of the layout: who may import whom, and where files may lie."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "ninfer_formats": ROOT / "formats/ninfer_formats",
    "ninfer_kernels": ROOT / "kernels/ninfer_kernels",
    "ninfer_runtime": ROOT / "runtime/ninfer_runtime",
    "ninfer_tools": ROOT / "ninfer_tools",
}
ALLOWED_SIBLINGS = {
    "ninfer_formats": {"ninfer_formats"},
    "ninfer_kernels": {"ninfer_kernels"},
    "ninfer_runtime": {"ninfer_runtime", "ninfer_formats", "ninfer_kernels"},
    "ninfer_tools": set(PACKAGES),
}
FORBIDDEN = {
    "ninfer_formats": None,  # anything but numpy and the standard library
    "ninfer_kernels": {"numpy", "transformers", "safetensors", "huggingface_hub"},
    "ninfer_runtime": {"transformers", "safetensors", "huggingface_hub"},
    "ninfer_tools": set(),
}
VAGUE = {"utils", "util", "helpers", "common", "misc", "manager"}


def imports(path: Path) -> list[tuple[str, bool]]:
    """Return (top-level module, whether it is imported at module level) of every import."""
    tree = ast.parse(path.read_text())
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        found += [(name.partition(".")[0], node in tree.body) for name in names]
    return found


def sources(package: str) -> list[Path]:
    return sorted(PACKAGES[package].rglob("*.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_in_the_decided_directions(package):
    for path in sources(package):
        for module, _ in imports(path):
            where = f"{path.relative_to(ROOT)} imports {module}"
            if module in PACKAGES:
                assert module in ALLOWED_SIBLINGS[package], where
            elif FORBIDDEN[package] is None:
                assert module == "numpy" or module in sys.stdlib_module_names, where
            else:
                assert module not in FORBIDDEN[package], where
            assert module not in ("tests", "scripts", "builders"), where


def test_looking_at_a_file_loads_no_heavy_library():
    """Only modules that conversion or serving load may import these at their top."""
    heavy = ("torch", "triton", "transformers", "safetensors", "huggingface_hub", "tokenizers")
    program = (
        "import sys, ninfer_tools.cli, ninfer_tools.inspect_artifact, ninfer_tools.check_artifact,"
        " ninfer_tools.migrate.command, ninfer_tools.synthetic.artifact;"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_cli_imports_only_typer_before_dispatch():
    files = [ROOT / "ninfer_tools" / name for name in ("cli.py", "cli_options.py")]
    eager = {module for path in files for module, top in imports(path) if top}
    assert eager - set(sys.stdlib_module_names) == {"typer", "ninfer_tools"}
    program = "import sys, ninfer_tools.cli; print(*(n for n in sys.modules if 'ninfer' in n))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name for name in done.stdout.split() if name.startswith("ninfer_")}
    # Options of the server are a table, which the command line is made of.
    options = {"serve_session", "serve_session.options", "serve_session.option_parameters"}
    own = {"cli", "cli_options", *options}
    assert loaded == {"ninfer_tools", *(f"ninfer_tools.{name}" for name in own)}


def test_formats_load_without_third_parties_but_numpy():
    program = (
        "import sys, ninfer_formats.reader, ninfer_formats.writer, ninfer_formats.completeness;"
        "print(sorted({n.partition('.')[0] for n in sys.modules} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(ast.literal_eval(done.stdout))
    assert {"torch", "triton", "typer", "tqdm"}.isdisjoint(loaded)
    assert {"numpy", "ninfer_formats"} <= loaded


@pytest.mark.parametrize("folder", ["formats", "kernels", "runtime"])
def test_mandated_folders_are_not_packages(folder):
    """A package named `kernels` here would shadow the one on PyPI for everyone in this folder."""
    assert not (ROOT / folder / "__init__.py").exists()


def test_no_module_has_a_vague_name():
    paths = [path for package in PACKAGES for path in sources(package)]
    assert len(paths) > 50
    assert not [path for path in paths if path.stem in VAGUE or path.parent.name in VAGUE]


def test_files_stay_small():
    lengths = [len(p.read_text().splitlines()) for name in PACKAGES for p in sources(name)]
    assert max(lengths) <= 400
    assert sorted(lengths)[len(lengths) // 2] < 120
