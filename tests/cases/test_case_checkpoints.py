"""Public reports about what a checkpoint holds: cases 6, 7, 8, 10, 11, 13, 14 and 54."""

from __future__ import annotations

import numpy as np
import pytest

from builders.checkpoints import (
    build_checkpoint,
    describe_config,
    tiny_geometry,
)
from builders.conversions import read_report
from builders.stored_forms import STORES, Stored
from ninfer_formats import numeric_formats as nf
from ninfer_formats.reader import open_artifact

TEXT = "model.language_model."
DOWN = f"{TEXT}layers.0.mlp.down_proj."


def scalar(value, shape=()):
    return Stored("F32", np.full(shape, value, "<f4"))


def decoded(path, name):
    return open_artifact(path).parameter(name).decode()


def format_of(path, name):
    return open_artifact(path).parameter(name).parts[0].tensor.format


@pytest.mark.parametrize("value", [None, 0.0, -1.0, np.nan, np.inf])
def test_case_06_unusable_global_scale_is_refused_by_name(refused, value):
    tiny = build_checkpoint(form="modelopt_nvfp4")
    tiny.drop(f"{DOWN}weight_scale_2")
    if value is not None:
        tiny.tensors[f"{DOWN}weight_scale_2"] = scalar(value)
    text = refused(tiny)
    assert f"{DOWN}weight_scale_2" in text
    assert ("scale is missing" if value is None else "scale cannot be used") in text


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_case_06_unusable_input_scale_is_refused_by_name(refused, value):
    tiny = build_checkpoint(form="modelopt_nvfp4")
    tiny.tensors[f"{DOWN}input_scale"] = scalar(value)
    assert f"{DOWN}input_scale: scale cannot be used" in refused(tiny)


def test_case_06_absent_input_scale_is_not_made_up(convert, out):
    """Weights can be decoded without it; four-bit activations are not allowed then."""
    tiny = build_checkpoint(form="modelopt_nvfp4")
    tiny.drop(f"{DOWN}input_scale")
    assert convert(tiny).code == 0
    policies = {use.parameter: use for use in open_artifact(out / "m.ninfer").uses}
    use = policies["text/layers/0/mlp/down"]
    assert (use.activation_policy, dict(use.auxiliaries)) == ("A16Only", {})
    assert policies["text/layers/1/mlp/down"].activation_policy == "AllowA4"


def test_case_07_stray_calibration_is_listed_as_ignored(convert, out):
    tiny = build_checkpoint(form="modelopt_nvfp4")
    stray = f"{TEXT}layers.0.linear_attn.in_proj_a.input_scale"
    tiny.tensors[stray] = scalar(1, (1,))
    assert convert(tiny).code == 0
    assert read_report(out / "m.ninfer")["ignored_tensors"] == [stray]


def test_case_07_wrong_shape_names_tensor_expected_and_found(refused):
    tiny = build_checkpoint()
    name = f"{TEXT}layers.0.linear_attn.in_proj_a.weight"
    tiny.tensors[name] = Stored("BF16", np.zeros((5, 128), "<u2"))
    text = refused(tiny)
    assert name in text and "got [5, 128]" in text and "want [6, 128]" in text


def mixed_checkpoint(form_of_up):
    """Return an NVFP4 checkpoint whose first gate is FP8 by row and whose up is as told."""
    tiny = build_checkpoint(form="modelopt_nvfp4")
    random = np.random.default_rng(5)
    for name, form in (("gate", "ct_row"), ("up", form_of_up)):
        prefix = f"{TEXT}layers.0.mlp.{name}_proj."
        tiny.drop(prefix)
        parts, values = STORES[form](random, 192, 128)
        tiny.tensors |= {prefix + part: stored for part, stored in parts.items()}
        tiny.values[f"text/layers/0/mlp/{name}"] = values
    return tiny


def test_case_08_each_tensor_decides_its_own_form(convert, out):
    tiny = mixed_checkpoint("hf_block")
    answer = convert(tiny)
    assert answer.code == 0, answer.err
    path = out / "m.ninfer"
    assert format_of(path, "text/layers/0/mlp/gate") == nf.FP8
    assert format_of(path, "text/layers/0/mlp/down") == nf.NVFP4
    mlp = "text/layers/0/mlp/"
    np.testing.assert_array_equal(decoded(path, f"{mlp}gate"), tiny.values[f"{mlp}gate"])
    np.testing.assert_allclose(
        decoded(path, f"{mlp}down"), tiny.values[f"{mlp}down"], rtol=2.0**-23, atol=0
    )
    want = tiny.values[f"{mlp}up"]
    assert np.linalg.norm(decoded(path, f"{mlp}up") - want) < 0.15 * np.linalg.norm(want)
    methods = {
        name: (item["format"], item["method"])
        for item in read_report(path)["objects"]
        for name in item["parameters"]
    }
    assert methods[f"{mlp}gate"] == (nf.FP8, "import")
    assert methods[f"{mlp}down"] == (nf.NVFP4, "import")
    assert methods[f"{mlp}up"][1] != "import"


@pytest.mark.parametrize("form", ["ct_row", "ct_tensor", "ct_block", "hf_block", "modelopt_fp8"])
def test_case_08_fp8_scales_multiply(convert, out, form):
    """A code of 2.0 with a scale of 0.5 is 1.0, and not 4.0."""
    tiny = build_checkpoint(form=form)
    for name, stored in tiny.tensors.items():
        if name.startswith(f"{TEXT}layers.0.mlp.down_proj.weight"):
            half = {"BF16": 0x3F00, "F32": 0.5, "F8_E4M3": 0x40}[stored.dtype]
            stored.words.fill(half)
    answer = convert(tiny, "--set", "text/layers/0/mlp/down=bf16")
    assert answer.code == 0, answer.err
    assert (decoded(out / "m.ninfer", "text/layers/0/mlp/down") == 1.0).all()


def test_case_08_unsupported_combination_is_refused_by_name(refused):
    tiny = build_checkpoint(form="modelopt_nvfp4")
    tiny.tensors[f"{DOWN}weight"] = Stored("I32", np.zeros((128, 24), "<i4"))
    assert DOWN in refused(tiny)


def test_case_10_announced_mtp_without_tensors(convert, refused, out):
    tiny = build_checkpoint()
    tiny.drop("mtp.")
    text = refused(tiny, "--components", "text,mtp")
    for words in (
        "component mtp is incomplete: 0 of 15 tensors found", "convert without mtp",
        "--source mtp=",
    ):  # fmt: skip
        assert words in text
    assert convert(tiny, "--components", "text").code == 0
    assert tuple(open_artifact(out / "m.ninfer").components) == ("text",)


def test_case_10_mtp_comes_from_the_original(tmp_path, convert, out):
    original, tuned = build_checkpoint(), build_checkpoint()
    tuned.drop("mtp.")
    folder = original.write(tmp_path / "original")
    answer = convert(tuned, "--components", "text,mtp", "--source", f"mtp={folder}")
    assert answer.code == 0, answer.err
    assert "mtp" in open_artifact(out / "m.ninfer").components


@pytest.mark.parametrize("form", ["ct_nvfp4", "modelopt_nvfp4"])
@pytest.mark.parametrize("quantised_mtp", [False, True])
def test_case_11_storage_decides_without_a_declaration(convert, out, form, quantised_mtp):
    def choose(name):
        inside = name.startswith("mtp.layers." if quantised_mtp else f"{TEXT}layers.")
        return inside and name.endswith("_proj.weight")

    tiny = build_checkpoint(form=form, quantise=choose)
    assert "quantization_config" not in tiny.config
    answer = convert(tiny, "--set", "*/input_projection=bf16")
    assert answer.code == 0, answer.err
    path, name = out / "m.ninfer", "mtp/input_projection"
    np.testing.assert_array_equal(decoded(path, name), tiny.values[name])
    owner = "mtp" if quantised_mtp else "text"
    name = f"{owner}/layers/0/mlp/down"
    np.testing.assert_allclose(decoded(path, name), tiny.values[name], rtol=2.0**-23, atol=0)


def split_experts(tensors):
    """Return the same tensors with fused experts one by one: rows of gate, then of up."""
    apart = {}
    for name, stored in tensors.items():
        before, sign, kind = name.partition(".experts.")
        for e, words in enumerate(stored.words if sign else ()):
            one = f"{before}.experts.{e}."
            if kind == "down_proj":
                apart[f"{one}down_proj.weight"] = Stored(stored.dtype, words)
                continue
            for half, part in zip(("gate", "up"), np.split(words, 2), strict=True):
                apart[f"{one}{half}_proj.weight"] = Stored(stored.dtype, part)
        if not sign:
            apart[name] = stored
    return apart


@pytest.mark.parametrize("profile", ["nvfp4", "groupwise-int"])
def test_case_13_both_expert_layouts_give_the_same_payload(convert, out, profile):
    """The directories differ only in the digest of their inputs, and by it in the artifact id."""
    tiny = build_checkpoint(moe=True)
    assert convert(tiny, "--profile", profile, "--name", "x", name="fused").code == 0
    tiny.tensors = split_experts(tiny.tensors)
    assert len([n for n in tiny.tensors if ".experts." in n]) == 3 * 4 * 3
    assert convert(tiny, "--profile", profile, "--name", "x", name="single").code == 0
    fused, single = (open_artifact(out / f"{name}.ninfer") for name in ("fused", "single"))
    assert list(fused.objects) == list(single.objects)
    assert dict(fused.bindings.items()) == dict(single.bindings.items())
    for id in fused.objects:
        np.testing.assert_array_equal(fused.raw_payload(id), single.raw_payload(id), id)
    made = [{**item.provenance, "inputs_sha256": None} for item in (fused, single)]
    assert made[0] == made[1] and fused.uses == single.uses
    assert fused.metadata == single.metadata and fused.file_bytes == single.file_bytes


def test_case_13_unknown_expert_layout_is_a_summary(refused):
    tiny = build_checkpoint(moe=True, split_experts=True)
    tiny.tensors = {n.replace(".experts.", ".specialists."): t for n, t in tiny.tensors.items()}
    text = refused(tiny)
    assert text.count("\n") == 1 and "in all" in text


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("prefix", [TEXT, "language_model.model.", "model."])
def test_case_14_every_prefix_converts_to_the_same_values(convert, out, prefix, flat):
    geometry = tiny_geometry(vision=False, mtp=False)
    tiny = build_checkpoint(geometry)
    tiny.config = describe_config(geometry, flat=flat)
    tiny.rename(TEXT, prefix)
    if prefix == "language_model.model.":
        tiny.rename("lm_head.", "language_model.lm_head.")
    answer = convert(tiny, "--profile", "bf16")
    assert answer.code == 0, answer.err
    for name in ("text/token_embedding", "text/layers/1/mlp/down", "text/output_head"):
        np.testing.assert_array_equal(decoded(out / "m.ninfer", name), tiny.values[name])


def test_case_14_unknown_prefix_is_named(refused):
    tiny = build_checkpoint(vision=False, mtp=False)
    tiny.rename(TEXT, "backbone.")
    text = refused(tiny)
    assert "backbone." in text and text.count("\n") <= 3


def test_case_14_vision_without_tensors_is_refused_up_front(refused):
    tiny = build_checkpoint()
    tiny.drop("model.visual.")
    text = refused(tiny, "--components", "text,vision")
    assert "component vision is incomplete: 0 of " in text


def test_case_54_tied_head_is_shared(convert, out):
    tiny = build_checkpoint(tied=True)
    assert "lm_head.weight" not in tiny.tensors
    assert convert(tiny).code == 0
    bindings = open_artifact(out / "m.ninfer").bindings
    assert bindings["text/output_head"] == bindings["text/token_embedding"]


def test_case_54_untied_model_without_a_head_is_refused(refused):
    tiny = build_checkpoint()
    tiny.drop("lm_head.")
    assert "lm_head.weight" in refused(tiny)


def test_case_54_stored_head_that_differs_decides_and_is_reported(convert, out):
    tiny = build_checkpoint()
    tiny.config["tie_word_embeddings"] = True
    assert convert(tiny, "--profile", "bf16").code == 0
    path, name = out / "m.ninfer", "text/output_head"
    np.testing.assert_array_equal(decoded(path, name), tiny.values[name])
    assert any("the stored tensor is used" in n for n in read_report(path)["notices"])
