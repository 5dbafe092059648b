"""The command line as a user calls it, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from builders.checkpoints import TinyCheckpoint, build_checkpoint
from ninfer_tools.cli import app


class Answer(NamedTuple):
    """What one call gave."""

    code: int
    out: str
    err: str

    @property
    def record(self) -> Any:
        return json.loads(self.out.splitlines()[-1])


@pytest.fixture
def ninfer() -> Callable[..., Answer]:
    """Run `ninfer` with some arguments; anything but an exit code is a defect."""

    def call(*arguments: object) -> Answer:
        result = CliRunner().invoke(app, [*map(str, arguments)])
        assert result.exception is None or isinstance(result.exception, SystemExit), result
        return Answer(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture
def convert(ninfer: Callable[..., Answer], tmp_path: Path) -> Callable[..., Answer]:
    """Write a checkpoint (or take a folder) and run `ninfer convert` to `tmp_path/out`."""

    def call(source: TinyCheckpoint | Path, *options: object, name: str = "m") -> Answer:
        folder = source if isinstance(source, Path) else source.write(tmp_path / name)
        out = tmp_path / "out" / f"{name}.ninfer"
        out.parent.mkdir(exist_ok=True)
        return ninfer("convert", folder, "--out", out, "--device", "cpu", *options)

    return call


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The folder of outputs."""
    return tmp_path / "out"


@pytest.fixture
def refused(convert: Callable[..., Answer], out: Path) -> Callable[..., str]:
    """Convert, which must be refused with nothing left behind; return the lines that say why."""

    def call(*arguments: Any, **options: Any) -> str:
        answer = convert(*arguments, **options)
        assert answer.code in (1, 2), answer
        assert list(out.iterdir()) == []
        assert answer.err.strip() and "Traceback" not in answer.err
        return answer.err

    return call


@pytest.fixture(scope="session")
def whole_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A converted artifact; not to be changed."""
    folder = tmp_path_factory.mktemp("whole")
    out = folder / "whole.ninfer"
    source = build_checkpoint().write(folder / "m")
    line = ["convert", str(source), "--out", str(out), "--device", "cpu"]
    assert CliRunner().invoke(app, line).exit_code == 0
    return out
