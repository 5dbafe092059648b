"""A small set of packed files to unpack, and calls of the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from builders.answers import Answer
from builders.packed_files import save_packed
from ninfer_tools.cli import app
from ninfer_tools.demo.manifest import Manifest


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return save_packed(tmp_path / "packed")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "cache/ninfer/demo"


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """Run `ninfer demo` with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*arguments: object) -> Answer:
        result = CliRunner().invoke(app, ["demo", *map(str, arguments)])
        return Answer(result.exit_code, result.stdout, result.stderr)

    return call
