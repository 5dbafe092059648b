"""Quantised artifacts: the engine computes with exactly the values that the words stand for."""

from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

from builders.checkpoints import build_checkpoint
from builders.conversions import convert
from builders.engines import greedy, make_engine, prompt_logits, random_prompt
from builders.tiny_contracts import ROWS, build_official_source, shrink_contracts
from builders.tiny_models import convert_model, decode_into, relative_error
from ninfer_formats.inventories.component_configs import geometry_from_components
from ninfer_formats.reader import open_artifact
from ninfer_tools.cli import app

FORMATS = ("q4", "q5", "q6", "q8", "fp8", "nvfp4")
BOUND = 3e-3  # N-62


def geometry_of(artifact):
    return geometry_from_components({c.name: c.config for c in artifact.components.values()})


@pytest.mark.parametrize("name", ["dense", "moe"])
@pytest.mark.parametrize("form", FORMATS)
def test_logits_are_those_of_transformers_on_the_decoded_weights(
    checkpoint, oracle, tmp_path, form, name
):
    """N-62"""
    artifact = convert_model(checkpoint(name), tmp_path / "a.ninfer", rules=[f"text/*={form}"])
    stored = {artifact.parameter(p).views()[0].format for p in artifact.bindings}
    assert any(form in kind for kind in stored)
    model, geometry, ids = oracle(name), geometry_of(artifact), random_prompt(40, seed=3)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    decode_into(model, geometry, artifact)
    with torch.no_grad():
        want = model(torch.tensor([ids])).logits[0]
    model.load_state_dict(before)
    engine = make_engine(artifact)
    assert relative_error(prompt_logits(engine, ids), want) <= BOUND


@pytest.mark.parametrize(
    ("name", "build", "profile"),
    [
        ("Qwen3.6-27B", build_checkpoint, "groupwise-int"),
        ("Qwen3.8-27B", build_official_source, "nvfp4"),
        ("Qwen3.6-35B-A3B", lambda: build_checkpoint(moe=True), "groupwise-int"),
    ],
)
def test_both_forms_of_an_artifact_give_the_same_tokens(
    tmp_path, monkeypatch, name, build, profile
):
    """N-62: version 2, and the version 3 that it is migrated to."""
    shrink_contracts(monkeypatch.setattr)
    folder, old, new = build().write(tmp_path / name), tmp_path / "2.ninfer", tmp_path / "3.ninfer"
    assert convert(folder, old, profile=profile, container=2, proposal_rows=ROWS) == 0
    migrate_to_3(old, new)
    prompt, options = random_prompt(30, seed=6), {"speculator": "mtp", "proposal_head": True}
    first, second = (open_artifact(path) for path in (old, new))
    assert (first.version, second.version) == (2, 3)
    want = greedy(make_engine(first), prompt, 48)
    assert len(set(want)) > 5
    assert greedy(make_engine(second), prompt, 48) == want
    assert greedy(make_engine(first, **options), prompt, 48) == want
    assert greedy(make_engine(second, **options), prompt, 48) == want


def migrate_to_3(source, out):
    assert CliRunner().invoke(app, ["migrate", str(source), str(out), "--to", "3"]).exit_code == 0
