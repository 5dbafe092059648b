"""Calls of the command, and a small legal artifact to damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from builders.answers import Answer
from ninfer_tools.cli import app
from ninfer_tools.synthetic.artifact import write_synthetic
from ninfer_tools.synthetic.specification import parse_spec

SPEC = "qwen3.5-0.8b:groupwise-int:layers=1:vocab=600:components=text:proposal=300"


@pytest.fixture
def inspect() -> Callable[..., Answer]:
    """Run `ninfer inspect` with some arguments."""

    def call(*arguments: object) -> Answer:
        result = CliRunner().invoke(app, ["inspect", *map(str, arguments)])
        return Answer(result.exit_code, result.stdout, result.stderr)

    return call


def errors_of(inspect: Callable[..., Answer], path: Path) -> list[dict[str, Any]]:
    """Return the errors of `--verify`; its exit code must agree with them."""
    answer = inspect(path, "--verify", "--json")
    errors = answer.record["verify"]["errors"]
    assert answer.code == (1 if errors else 0)
    return errors


@pytest.fixture(scope="session")
def legal_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A legal one-layer artifact with real payload; not to be changed."""
    path = tmp_path_factory.mktemp("legal") / "legal.ninfer"
    write_synthetic(parse_spec(SPEC), path)
    return path


@pytest.fixture
def copy_of_legal(legal_artifact: Path, tmp_path: Path) -> Path:
    """A copy of the legal artifact that a test may damage."""
    return Path(shutil.copy(legal_artifact, tmp_path / "m.ninfer"))
