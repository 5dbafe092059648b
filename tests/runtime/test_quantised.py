"""Quantised artifacts: the engine computes with exactly the values that the words stand for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from builders.checkpoints import build_checkpoint, compose
from builders.conversions import convert
from builders.engines import answer, greedy, make_engine, prompt_logits, random_prompt
from builders.stored_forms import Stored
from builders.tiny_contracts import ROWS, build_official_source, shrink_contracts
from builders.tiny_models import build_model, convert_model, decode_into, relative_error
from ninfer_formats.inventories.component_configs import geometry_from_components
from ninfer_formats.reader import open_artifact
from ninfer_runtime.engine.request import Request
from ninfer_runtime.models.qwen3_5.patch_grid import PatchGrid
from ninfer_runtime.models.qwen3_5.vision import run_vision
from ninfer_tools.cli import app

FORMATS = ("fp32", "q4", "q5", "q6", "q8", "fp8", "nvfp4")
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


def test_activation_policies_and_divisors_change_nothing(tmp_path):
    """N-62: equal words with a divisor for every use (AllowA4), with rows of FP8 (AllowA8), and
    without divisors (A16Only)."""
    tiny = build_checkpoint(form=lambda name: form_of(name))
    first = convert_model(tiny.write(tmp_path / "1"), tmp_path / "1.ninfer")
    tiny.drop(*[name for name in tiny.tensors if name.endswith("input_global_scale")])
    second = convert_model(tiny.write(tmp_path / "2"), tmp_path / "2.ninfer")
    policies = [{use.activation_policy for use in a.uses} for a in (first, second)]
    assert policies == [{"A16Only", "AllowA8", "AllowA4"}, {"A16Only", "AllowA8"}]
    ids = random_prompt(40, seed=7)
    got, want = (prompt_logits(make_engine(a), ids) for a in (first, second))
    assert bool(torch.isfinite(got).all()) and torch.equal(got, want)
    tokens = [greedy(make_engine(a), ids, 32) for a in (first, second)]
    assert tokens[0] == tokens[1]


def form_of(name):
    """Feed-forwards of text layers in NVFP4, their attention in rows of FP8, all else plain."""
    if not name.startswith("model.language_model.layers.") or not name.endswith("_proj.weight"):
        return None
    return "ct_nvfp4" if ".mlp." in name else "ct_row" if "self_attn" in name else None


@pytest.mark.parametrize("name", ["dense", "moe"])
@pytest.mark.parametrize("profile", ["nvfp4", "groupwise-int", "fp8"])
def test_drafts_and_media_of_mixed_artifacts_are_those_of_the_decoded_weights(
    checkpoint, tmp_path, profile, name
):
    """N-62: an artifact of many formats, and one that holds the same values in float32."""
    folder = checkpoint(name)
    mixed = convert_model(folder, tmp_path / "m.ninfer", profile=profile)
    formats = {part.tensor.format for p in mixed.bindings for part in mixed.parameter(p).parts}
    assert len(formats) > (5 if profile == "nvfp4" else 2)
    geometry = geometry_of(mixed)
    own = compose(geometry, lambda p: mixed.parameter(p).decode(), True)
    tiny = build_model(moe=name == "moe", split_experts=True)
    tiny.tensors = {n: Stored("F32", np.ascontiguousarray(v, "<f4")) for n, v in own.items()}
    rules = [
        f"{p}=fp32" for p in mixed.bindings
        if mixed.parameter(p).parts[0].tensor.format != "int32"
    ]  # fmt: skip
    plain = convert_model(tiny.write(tmp_path / "p"), tmp_path / "p.ninfer", rules=rules)
    assert {part.tensor.format for p in plain.bindings for part in plain.parameter(p).parts} == {
        "fp32"
    }
    options, ids = {"speculator": "mtp", "draft_tokens": 3}, random_prompt(40, seed=8)
    engines = [make_engine(a, **options) for a in (mixed, plain)]
    got, want = (prompt_logits(engine, ids) for engine in engines)
    assert relative_error(got, want) <= BOUND
    answers = [answer(engine, Request(ids, 48)) for engine in engines]
    assert answers[0].tokens == answers[1].tokens and answers[0].rounds == answers[1].rounds
    pixels = torch.randn(64, 1536, generator=torch.Generator().manual_seed(2))
    rows = []
    for engine in engines:
        assert engine.model.vision is not None
        rows.append(run_vision(engine.model.vision, pixels, [PatchGrid(1, 8, 8)]))
    assert relative_error(*rows) <= BOUND


def migrate_to_3(source, out):
    assert CliRunner().invoke(app, ["migrate", str(source), str(out), "--to", "3"]).exit_code == 0
