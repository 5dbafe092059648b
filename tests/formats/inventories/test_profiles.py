"""Formats and policies of the five profiles."""

from collections import Counter

import pytest

from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.family import family_geometry
from ninfer_formats.inventories.geometry import with_layers
from ninfer_formats.inventories.parameters import list_parameters
from ninfer_formats.inventories.plan import plan_inventory
from ninfer_formats.inventories.profiles import PROFILE_NAMES, build_mixed_nvfp4, build_profile

BASE = ("text", "mtp", "vision")
# bf16, fp32, int32, q4, q5, q6, q8, nvfp4, fp8 of the weights (auxiliaries not counted).
FORMATS = (nf.BF16, nf.FP32, nf.INT32, nf.Q4, nf.Q5, nf.Q6, nf.Q8, nf.NVFP4, nf.FP8)


@pytest.mark.parametrize(
    ("model_id", "profile", "drafter", "counts"),
    [
        ("qwen3.6-27b", "groupwise-int", (), (582, 96, 1, 183, 246, 3, 7, 0, 0)),
        ("qwen3.8-27b", "groupwise-int", ("dflash2",), (627, 96, 1, 183, 246, 1, 30, 0, 0)),
        ("qwen3.6-35b-a3b", "groupwise-int", ("dflash",), (487, 60, 1, 95, 91, 5, 195, 0, 0)),
        ("qwen3.8-27b", "nvfp4-official", ("dflash2",), (579, 96, 1, 55, 54, 1, 28, 112, 146)),
        ("qwen3.6-27b", "mixed", (), (591, 96, 1, 55, 54, 1, 9, 247, 0)),
        ("qwen3.8-27b", "nvfp4", (), (534, 96, 1, 55, 54, 3, 7, 256, 0)),
    ],
)
def test_format_counts(model_id, profile, drafter, counts):
    """INV-15 to INV-19: counts of the published inventories, and of nvfp4."""
    geometry = family_geometry(model_id)
    mixed = profile == "mixed"
    built = build_mixed_nvfp4() if mixed else build_profile(profile, geometry, model_id)
    plan = plan_inventory(geometry, built, (*BASE, *drafter), 131072)
    found = Counter(p.format for p in plan.parents)
    assert tuple(found[name] for name in FORMATS) == counts


def assignments(model_id, profile, layers=None):
    geometry = family_geometry(model_id)
    if layers is not None:
        geometry = with_layers(geometry, layers)
    built = build_profile(profile, geometry, model_id)
    parameters = list_parameters(geometry, geometry.components, 131072)
    return {p.name: built.assign(p) for p in parameters}


def test_nvfp4_is_weight_only():
    """INV-15: there are no activation divisors, so the policy is A16Only."""
    found = assignments("qwen3.8-27b", "nvfp4")
    assert found["text/layers/0/mlp/down"] == (nf.NVFP4, "A16Only")
    assert found["text/layers/3/attention/gate"].format == nf.NVFP4
    assert found["text/layers/0/gdn/z"].format == nf.NVFP4
    assert found["text/token_embedding"] == (nf.Q6, None)
    assert found["text/output_head"] == (nf.Q6, "A16Only")
    assert found["mtp/layers/0/mlp/gate"].format == nf.Q8
    assert found["mtp/input_projection"].format == nf.Q8
    assert found["proposal/head"].format == nf.Q4
    assert found["vision/layers/0/attention/query"].format == nf.Q4
    assert found["vision/merger/fc2"].format == nf.Q8
    assert found["dflash2/layers/0/attention/context_key"].format == nf.Q8
    assert found["dflash2/layers/0/mlp_conv/kernel_projection"].format == nf.BF16


def test_nvfp4_covers_routed_and_shared_experts():
    """INV-15."""
    found = assignments("qwen3.5-35b-a3b", "nvfp4", 4)
    layer = "text/layers/0/moe"
    assert found[f"{layer}/experts/255/down"].format == nf.NVFP4
    assert found[f"{layer}/shared/up"].format == nf.NVFP4
    assert found[f"{layer}/router"].format == nf.BF16
    assert found[f"{layer}/shared_score"].format == nf.BF16


@pytest.mark.parametrize(("layers", "first_fp8"), [(64, 56), (32, 28), (8, 7), (4, 4)])
def test_official_profile_keeps_the_last_eighth_of_mlps_in_fp8(layers, first_fp8):
    """INV-16."""
    found = assignments("qwen3.8-27b", "nvfp4-official", layers)
    formats = [found[f"text/layers/{i}/mlp/down"].format for i in range(layers)]
    assert formats == [nf.NVFP4] * first_fp8 + [nf.FP8] * (layers - first_fp8)
    assert found["text/layers/0/mlp/up"].activation_policy == "AllowA4"
    assert found["text/layers/3/attention/query"] == (nf.FP8, "AllowA8")


def test_sharper_downs_belong_to_the_40_layer_model_only():
    """INV-17."""
    name = "text/layers/34/moe/experts/0/down"
    assert assignments("qwen3.6-35b-a3b", "groupwise-int")[name].format == nf.Q6
    assert assignments("qwen3.6-35b-a3b", "groupwise-int", 36)[name].format == nf.Q5


@pytest.mark.parametrize(
    ("model_id", "format"),
    [("qwen3.6-27b", nf.Q6), ("qwen3.8-27b", nf.Q8), ("qwen3.5-0.8b", nf.Q8)],
)
def test_integer_embedding_and_head(model_id, format):
    """INV-17."""
    found = assignments(model_id, "groupwise-int", 4)
    assert found["text/token_embedding"].format == format
    assert found["text/output_head"].format == format


def test_fp8_profile():
    """INV-18."""
    found = assignments("qwen3.8-27b", "fp8", 4)
    for name in ("text/token_embedding", "text/output_head", "text/layers/0/gdn/output"):
        assert found[name].format == nf.FP8
    assert found["mtp/layers/0/attention/query"] == (nf.FP8, "AllowA8")
    assert found["mtp/input_projection"].format == nf.FP8
    assert found["vision/layers/0/mlp/fc1"].format == nf.BF16
    assert found["proposal/head"].format == nf.Q4


def test_bf16_profile_quantises_nothing():
    """INV-19."""
    found = assignments("qwen3.8-27b", "bf16", 4)
    assert {a.format for a in found.values()} == {nf.BF16, nf.FP32, nf.INT32}
    assert found["text/layers/0/gdn/a_log"].format == nf.FP32


@pytest.mark.parametrize("profile", PROFILE_NAMES)
@pytest.mark.parametrize("model_id", ["qwen3.8-27b", "qwen3.6-35b-a3b"])
def test_small_and_sensitive_parameters_stay_direct(profile, model_id):
    """INV-15 to INV-19: norms, convolutions, a/b projections, routers and the selector."""
    for name, assignment in assignments(model_id, profile, 4).items():
        last = name.rpartition("/")[2]
        if last in ("a_log", "dt_bias"):
            assert assignment.format == nf.FP32
        if "norm" in last or last in ("convolution", "a_projection", "b_projection", "router"):
            assert assignment.format == nf.BF16
        if "candidate_selector" in name or last == "shared_score":
            assert assignment.format == nf.BF16


def test_unknown_profile_is_refused_with_the_list():
    with pytest.raises(UsageError, match="got q3, want nvfp4, nvfp4-official"):
        build_profile("q3", family_geometry("qwen3.8-27b"))
