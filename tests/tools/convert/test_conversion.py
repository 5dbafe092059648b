"""Whole conversions of tiny checkpoints: every parameter comes out with the source's values."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from builders.checkpoints import build_checkpoint, build_drafter, tiny_geometry
from builders.conversions import convert, converted, read_report
from builders.stored_forms import FORMS, bf16_values
from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.rounding import round_to_bf16
from ninfer_formats.inventories.plan import plan_inventory
from ninfer_formats.inventories.profiles import build_profile
from ninfer_formats.tensors import decode_tensor, encode_tensor
from ninfer_tools.convert.sources.checkpoint import open_checkpoint
from ninfer_tools.convert.sources.mapping import map_sources

PROFILES = ("nvfp4", "groupwise-int", "fp8", "bf16")


def format_of(artifact, name):
    return artifact.parameter(name).parts[0].tensor.format


def assert_values(artifact, values):
    """Direct parameters have the source's values rounded to their format, others lie near."""
    names = [name for name in artifact.bindings if not name.startswith("proposal/")]
    assert set(names) == set(values)
    for name in names:
        found, want = artifact.parameter(name).decode().reshape(-1), values[name].reshape(-1)
        format = format_of(artifact, name)
        if format == nf.BF16:
            want = bf16_values(round_to_bf16(want))
        if format in (nf.BF16, nf.FP32):
            np.testing.assert_array_equal(found, want, err_msg=name)
        else:
            error = np.linalg.norm(found - want) / np.linalg.norm(want)
            assert error < 0.15, f"{name}: {error}"


@pytest.mark.parametrize("profile", PROFILES)
def test_dense_parameters_hold_the_source_values(tmp_path, profile):
    """V-10: a profile decides the formats; nothing else changes a value."""
    tiny = build_checkpoint()
    artifact = converted(tiny.write(tmp_path / "m", 2), tmp_path / "a.ninfer", profile=profile)
    assert_values(artifact, tiny.values)
    assert not artifact.find_problems()


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("profile", ["nvfp4", "groupwise-int"])
def test_expert_parameters_hold_the_source_values(tmp_path, profile, split):
    tiny = build_checkpoint(moe=True, split_experts=split)
    artifact = converted(tiny.write(tmp_path / "m"), tmp_path / "a.ninfer", profile=profile)
    assert_values(artifact, tiny.values)


def test_drafter_parameters_hold_the_source_values(tmp_path):
    geometry = tiny_geometry(drafter=True)
    tiny, drafter = build_checkpoint(geometry), build_drafter(geometry)
    folder = drafter.write(tmp_path / "d")
    artifact = converted(
        tiny.write(tmp_path / "m"), tmp_path / "a.ninfer", sources=[f"dflash2={folder}"]
    )
    assert tuple(artifact.components) == ("text", "mtp", "vision", "dflash2")
    assert_values(artifact, tiny.values | drafter.values)


def test_tied_head_shares_the_object_of_the_embedding(tmp_path):
    """V-32."""
    tiny = build_checkpoint(tied=True)
    artifact = converted(tiny.write(tmp_path / "m"), tmp_path / "a.ninfer")
    assert artifact.bindings["text/output_head"] == artifact.bindings["text/token_embedding"]
    assert_values(artifact, tiny.values)


def test_tied_head_with_a_format_of_its_own_is_stored_alone(tmp_path):
    """V-32."""
    tiny = build_checkpoint(tied=True)
    rules = ["text/output_head=q8"]
    artifact = converted(tiny.write(tmp_path / "m"), tmp_path / "a.ninfer", rules=rules)
    assert format_of(artifact, "text/output_head") == nf.Q8
    assert format_of(artifact, "text/token_embedding") == nf.Q6


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("moe", [False, True])
def test_stored_codes_are_taken_over_untouched(tmp_path, form, moe):
    """V-11: NVFP4, FP8 rows and FP8 tensors with a bfloat16 scale keep their codes."""
    tiny = build_checkpoint(form=form, moe=moe)
    artifact = converted(tiny.write(tmp_path / "m", 2), tmp_path / "a.ninfer")
    name = "text/layers/0/gdn/value"
    want = {"ct_nvfp4": nf.NVFP4, "modelopt_nvfp4": nf.NVFP4, "ct_row": nf.FP8, "ct_tensor": nf.FP8}
    assert format_of(artifact, name) == want.get(form, nf.NVFP4)
    if form in want and form != "modelopt_nvfp4":
        for name in (n for n in artifact.bindings if format_of(artifact, n) == want[form]):
            found = artifact.parameter(name).decode()
            np.testing.assert_array_equal(found.reshape(-1), tiny.values[name].reshape(-1), name)
    elif form == "modelopt_nvfp4":
        found = artifact.parameter(name).decode()
        np.testing.assert_allclose(found, tiny.values[name], rtol=2.0**-23, atol=0)
        assert set(read_report(tmp_path / "a.ninfer")["not_bit_equal"]) <= set(tiny.values)
    else:
        assert_values(artifact, tiny.values)


def test_products_with_a_carried_divisor_allow_four_bit_activations(tmp_path):
    """V-34: each use has its own divisor object with the source's value."""
    folder = build_checkpoint(form="ct_nvfp4").write(tmp_path / "m")
    artifact = converted(folder, tmp_path / "a.ninfer")
    checkpoint = open_checkpoint(folder)
    sources = map_sources(tiny_geometry(), ("text",), {"base": checkpoint}).sources
    allowed = [use for use in artifact.uses if use.activation_policy == "AllowA4"]
    assert allowed
    for use in allowed:
        part = use.auxiliaries["activation_input_divisor"].parts[0]
        stored = artifact.payload_of(part.object).copy().view("<f4")[0]
        assert stored == sources[use.parameter].input_divisor
    objects = [use.auxiliaries["activation_input_divisor"].parts[0].object for use in allowed]
    assert len(set(objects)) == len(objects)


def test_encoded_nvfp4_has_sixteen_bit_activations_and_fp8_eight(tmp_path):
    """V-34."""
    folder = build_checkpoint().write(tmp_path / "m")
    rules = ["text/layers/1/mlp/*=fp8"]
    artifact = converted(folder, tmp_path / "a.ninfer", rules=rules)
    policies = {
        (format_of(artifact, use.parameter), use.activation_policy) for use in artifact.uses
    }
    assert (nf.NVFP4, "A16Only") in policies and (nf.FP8, "AllowA8") in policies
    assert not any(policy == "AllowA4" for _, policy in policies)


def test_codes_with_different_divisors_lie_in_parents_of_their_own(tmp_path):
    """V-31: q, k and v have a divisor each; query and gate share one stored matrix."""
    folder = build_checkpoint(form="ct_nvfp4").write(tmp_path / "m")
    artifact = converted(folder, tmp_path / "a.ninfer")
    owners = {
        name: artifact.bindings[f"text/layers/1/attention/{name}"].parts[0].object
        for name in ("query", "key", "gate", "value")
    }
    assert len(set(owners.values())) == 4
    gdn = [artifact.bindings[f"text/layers/0/gdn/{n}"].parts[0].object for n in ("query", "key")]
    assert gdn[0] == gdn[1]


@pytest.mark.parametrize("profile", PROFILES)
def test_plan_equals_the_published_inventory_rules(tmp_path, profile):
    """V-30: parents, bindings and uses of an unquantised source are those of INV rules."""
    tiny = build_checkpoint()
    artifact = converted(tiny.write(tmp_path / "m"), tmp_path / "a.ninfer", profile=profile)
    geometry = tiny.geometry
    want = plan_inventory(geometry, build_profile(profile, geometry), geometry.components)
    tensors = [(t.id, t.shape, t.format) for t in artifact.tensors()]
    assert tensors == [(p.id, p.shape, p.format) for p in want.parents]
    assert dict(artifact.bindings.items()) == dict(want.bindings)
    assert artifact.uses == want.uses


def test_encoded_bytes_are_those_of_the_reference_encoder(tmp_path):
    """V-41: streaming in row blocks changes no byte, here with NVFP4 by search."""
    tiny = build_checkpoint()
    artifact = converted(tiny.write(tmp_path / "m"), tmp_path / "a.ninfer")
    gate, up = (tiny.values[f"text/layers/0/mlp/{name}"] for name in ("gate", "up"))
    whole = encode_tensor(np.concatenate([gate, up]), nf.NVFP4, "search")
    tensor = artifact.parameter("text/layers/0/mlp/gate").parts[0].tensor
    np.testing.assert_array_equal(artifact.payload_of(tensor.id), whole)
    assert decode_tensor(whole, nf.NVFP4, tensor.layout, tensor.shape).shape == (384, 128)


def test_equal_conversions_have_equal_bytes(tmp_path):
    """V-40: also from another folder of the same name, and under another file name."""
    digests = set()
    for run in ("one", "two"):
        folder = build_checkpoint().write(tmp_path / run / "m", 3)
        out = tmp_path / f"{run}.ninfer"
        converted(folder, out)
        digests.add(hashlib.sha256(out.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_other_weights_give_another_artifact_id(tmp_path):
    """V-42."""
    ids = set()
    for seed in (0, 1):
        folder = build_checkpoint(seed=seed).write(tmp_path / str(seed) / "m")
        ids.add(converted(folder, tmp_path / f"{seed}.ninfer").prefix.artifact_id)
    assert len(ids) == 2


def test_parts_hold_what_one_file_holds(tmp_path):
    """V-43."""
    folder = build_checkpoint().write(tmp_path / "m")
    whole = converted(folder, tmp_path / "a.ninfer", profile="bf16")
    split = converted(folder, tmp_path / "b.ninfer", profile="bf16", max_file_bytes=400_000)
    assert len(split.files) > 2
    for id in whole.objects:
        np.testing.assert_array_equal(whole.raw_payload(id), split.raw_payload(id))


def test_components_restrict_what_is_converted(tmp_path):
    """V-2."""
    folder = build_checkpoint().write(tmp_path / "m")
    artifact = converted(folder, tmp_path / "a.ninfer", components="text,mtp")
    assert tuple(artifact.components) == ("text", "mtp")
    assert not any(name.startswith("vision/") for name in artifact.bindings)


def test_report_names_sources_methods_and_errors(tmp_path):
    """V-60 and V-61."""
    out = tmp_path / "a.ninfer"
    converted(build_checkpoint(form="ct_row").write(tmp_path / "m"), out)
    report = read_report(out)
    by_method = {item["method"]: item for item in report["objects"]}
    assert set(by_method) == {"import", "cast", "absmax"}
    assert by_method["import"]["exact"] and by_method["import"]["errors"] is None
    assert 0 < by_method["absmax"]["errors"]["relative_error"] < 0.15
    assert by_method["absmax"]["errors"]["cosine"] > 0.99
    assert by_method["absmax"]["errors"]["max_error"] > 0
    listed = [name for item in report["objects"] for name in item["parameters"]]
    assert "text/layers/0/mlp/down" in listed
    assert report["sources"]["base"]["files"]["model.safetensors"]["bytes"] > 0
    assert any("q_proj" in t for item in report["objects"] for t in item["tensors"])


def test_dry_run_writes_nothing_and_knows_the_size(tmp_path, capsys):
    """V-3: the size is that of the artifact to the byte."""
    import json

    folder, out = build_checkpoint().write(tmp_path / "m"), tmp_path / "o" / "a.ninfer"
    out.parent.mkdir()
    assert convert(folder, out, dry_run=True, json_output=True) == 0
    record = json.loads(capsys.readouterr().out)
    assert list(out.parent.iterdir()) == []
    converted(folder, out)
    assert record["bytes"] == out.stat().st_size


def test_existing_files_are_not_overwritten_without_force(tmp_path):
    """V-55."""
    from ninfer_formats.errors import UsageError

    folder, out = build_checkpoint().write(tmp_path / "m"), tmp_path / "a.ninfer"
    out.write_bytes(b"kept")
    with pytest.raises(UsageError, match="exists"):
        convert(folder, out)
    assert out.read_bytes() == b"kept"
    converted(folder, out, force=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "a.ninfer", "a.ninfer.conversion.json", "m"
    ]  # fmt: skip
