"""Conversions that are refused before, or while, weights are read."""

from __future__ import annotations

import numpy as np
import pytest

from builders.checkpoints import build_checkpoint
from builders.conversions import convert
from builders.stored_forms import Stored
from ninfer_formats.errors import NumericError, UsageError


def test_every_preflight_problem_is_one_line(tmp_path, capsys):
    """V-4: all problems at once, before any work."""
    tiny = build_checkpoint()
    tiny.drop("mtp.fc.weight", "model.language_model.norm.weight")
    del tiny.resources["chat_template.jinja"]
    assert convert(tiny.write(tmp_path / "m"), tmp_path / "a.ninfer") == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert any("mtp.fc.weight" in line for line in lines)
    assert any("language_model.norm.weight" in line for line in lines)
    assert any("chat_template.jinja" in line for line in lines)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"]


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("model.language_model.layers.0.mlp.up_proj.weight", "nvfp4"),
        ("model.language_model.layers.0.mlp.up_proj.weight", "groupwise-int"),
        ("model.language_model.layers.0.mlp.up_proj.weight", "fp8"),
        ("model.language_model.layers.0.mlp.up_proj.weight", "bf16"),
        ("model.language_model.norm.weight", "nvfp4"),
    ],
)
def test_nan_is_refused_by_tensor_and_row_and_nothing_is_left(tmp_path, name, profile):
    """V-5."""
    tiny = build_checkpoint()
    words = np.array(tiny.tensors[name].words)
    words.reshape(-1)[-1] = 0x7FC0
    tiny.tensors[name] = Stored("BF16", words)
    row = words.shape[0] - 1
    with pytest.raises(NumericError) as refused:
        convert(tiny.write(tmp_path / "m"), tmp_path / "a.ninfer", profile=profile)
    assert name in str(refused.value) and f"row {row}" in str(refused.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"]


def test_output_that_is_a_source_file_is_refused(tmp_path):
    """V-7."""
    folder = build_checkpoint().write(tmp_path / "m")
    with pytest.raises(UsageError, match="a file of the source"):
        convert(folder, folder / "model.safetensors", force=True)


@pytest.mark.parametrize(
    "options",
    [
        {"sources": ["teacher=x"]},
        {"resources": ["vocab.json=x"]},
        {"profile": "int3"},
        {"no_proposal": True, "proposal_rows": 64},
        {"components": "mtp"},
    ],
)
def test_options_that_cannot_be_followed_are_refused(tmp_path, options):
    """V-8."""
    with pytest.raises(UsageError):
        convert(build_checkpoint().write(tmp_path / "m"), tmp_path / "a.ninfer", **options)
