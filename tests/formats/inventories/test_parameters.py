"""Logical parameters: names, order, shapes, input sites."""

import pytest

from ninfer_formats.inventories.family import FAMILY_NAMES, family_geometry
from ninfer_formats.inventories.geometry import with_layers
from ninfer_formats.inventories.parameters import (
    list_parameters,
)

BASE = ("text", "mtp", "vision")


def by_name(model_id, components, layers=None, rows=131072):
    geometry = family_geometry(model_id)
    if layers is not None:
        geometry = with_layers(geometry, layers)
    return {p.name: p for p in list_parameters(geometry, components, rows)}


def test_order_of_the_whole_list():
    """INV-7: embedding, head, final norm, layers, mtp, vision, drafter, proposal, aliases."""
    names = list(by_name("qwen3.8-27b", (*BASE, "dflash2"), 4))
    firsts = list(dict.fromkeys(name.partition("/")[0] for name in names[:-10]))
    assert names[:4] == [
        "text/token_embedding",
        "text/output_head",
        "text/final_norm",
        "text/layers/0/input_norm",
    ]
    assert firsts == ["text", "mtp", "vision", "dflash2", "proposal"]
    assert names[-12:-10] == ["proposal/head", "proposal/token_ids"]
    assert names[-10:] == [
        f"dflash2/layers/{i}/attention/context_{n}" for i in range(5) for n in ("key", "value")
    ]


def test_parameters_of_a_gdn_layer():
    """INV-7, 27B shapes."""
    found = by_name("qwen3.8-27b", ("text",), 4)
    shapes = {
        name.removeprefix("text/layers/0/"): p.shape
        for name, p in found.items()
        if name.startswith("text/layers/0/")
    }
    assert shapes == {
        "input_norm": (5120,),
        "post_attention_norm": (5120,),
        "gdn/a_log": (48,),
        "gdn/dt_bias": (48,),
        "gdn/convolution": (4, 10240),
        "gdn/a_projection": (48, 5120),
        "gdn/b_projection": (48, 5120),
        "gdn/query": (2048, 5120),
        "gdn/key": (2048, 5120),
        "gdn/value": (6144, 5120),
        "gdn/z": (6144, 5120),
        "gdn/norm": (128,),
        "gdn/output": (5120, 6144),
        "mlp/gate": (17408, 5120),
        "mlp/up": (17408, 5120),
        "mlp/down": (5120, 17408),
    }


def test_parameters_of_an_expert_layer():
    """INV-7: per expert gate, up, down; then the shared expert."""
    names = [n for n in by_name("qwen3.6-35b-a3b", ("text",), 4) if n.startswith("text/layers/3/")]
    moe = [n.removeprefix("text/layers/3/moe/") for n in names if "/moe/" in n]
    assert moe[:6] == [
        "router",
        "shared_score",
        "experts/0/gate",
        "experts/0/up",
        "experts/0/down",
        "experts/1/gate",
    ]
    assert moe[-4:] == ["experts/255/down", "shared/gate", "shared/up", "shared/down"]
    assert len(moe) == 2 + 3 * 256 + 3


def test_drafter_shapes():
    """INV-7, against the published suffix."""
    found = by_name("qwen3.8-27b", ("text", "dflash2"))
    for name, shape in {
        "feature_projection": (5120, 25600),
        "layers/0/attention_conv/base_kernel": (2, 2, 5120),
        "layers/0/attention_conv/kernel_projection": (1280, 5120),
        "layers/4/attention/query": (4096, 5120),
        "candidate_selector/hidden_projection": (256, 5120),
        "candidate_selector/successor_codebook": (248320, 256),
    }.items():
        assert found[f"dflash2/{name}"].shape == shape
    assert by_name("qwen3.6-35b-a3b", ("text", "dflash"), 40)[
        "dflash/feature_projection"
    ].shape == (2048, 16384)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("text/token_embedding", ()),
        (
            "text/output_head",
            ("text/final_hidden", "mtp/final_hidden", "dflash2/final_hidden"),
        ),
        ("proposal/head", ("mtp/final_hidden", "dflash2/final_hidden")),
        ("text/layers/3/attention/gate", ("text/layers/3/mixer_input",)),
        ("text/layers/3/attention/output", ("text/layers/3/attention/gated_output",)),
        ("text/layers/0/gdn/b_projection", ("text/layers/0/mixer_input",)),
        ("text/layers/0/gdn/output", ("text/layers/0/gdn/gated_output",)),
        ("text/layers/0/mlp/up", ("text/layers/0/ffn_input",)),
        ("text/layers/0/mlp/down", ("text/layers/0/mlp/product",)),
        ("mtp/input_projection", ("mtp/stem_input",)),
        ("mtp/layers/0/mlp/down", ("mtp/layers/0/mlp/product",)),
        ("vision/patch_embedding", ("vision/patch_input",)),
        ("vision/layers/2/attention/key", ("vision/layers/2/attention_input",)),
        ("vision/layers/2/attention/output", ("vision/layers/2/attention_output",)),
        ("vision/layers/2/mlp/fc1", ("vision/layers/2/mlp_input",)),
        ("vision/layers/2/mlp/fc2", ("vision/layers/2/mlp_activation",)),
        ("vision/merger/fc1", ("vision/merger/input",)),
        ("vision/merger/fc2", ("vision/merger/activation",)),
        ("dflash2/feature_projection", ("dflash2/target_features",)),
        ("dflash2/layers/1/attention/key", ("dflash2/layers/1/query_projection_input",)),
        ("dflash2/layers/1/attention/context_key", ("dflash2/context_input",)),
        ("dflash2/layers/1/attention/output", ("dflash2/layers/1/attention_output",)),
        ("dflash2/layers/1/mlp/gate", ("dflash2/layers/1/mlp_input",)),
        ("dflash2/layers/1/mlp/down", ("dflash2/layers/1/mlp_product",)),
        (
            "dflash2/layers/1/attention_conv/kernel_projection",
            ("dflash2/layers/1/attention_conv_input",),
        ),
        ("dflash2/layers/1/mlp_conv/kernel_projection", ("dflash2/layers/1/mlp_conv_input",)),
        ("dflash2/candidate_selector/hidden_projection", ("dflash2/final_hidden",)),
        ("dflash2/candidate_selector/predecessor_codebook", ()),
    ],
)
def test_input_sites(name, inputs):
    """INV-9."""
    assert by_name("qwen3.8-27b", (*BASE, "dflash2"), 8)[name].inputs == inputs


def test_input_sites_of_experts():
    """INV-9: gate and up share the layer's site, every down has its own."""
    found = by_name("qwen3.6-35b-a3b", ("text", "mtp"), 4)
    experts = "text/layers/1/moe/experts/17"
    assert found[f"{experts}/gate"].inputs == ("text/layers/1/ffn_input",)
    assert found[f"{experts}/down"].inputs == (f"{experts}/product",)
    assert found["text/layers/1/moe/router"].inputs == ("text/layers/1/ffn_input",)
    assert found["mtp/layers/0/moe/shared/down"].inputs == ("mtp/layers/0/moe/shared/product",)


def test_heads_serve_only_the_drafters_that_are_there():
    """INV-9."""
    found = by_name("qwen3.8-27b", ("text",), 4)
    assert found["text/output_head"].inputs == ("text/final_hidden",)
    assert found["proposal/head"].inputs == ()


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_names_are_unique(name):
    geometry = family_geometry(name)
    names = [p.name for p in list_parameters(geometry, geometry.components, 131072)]
    assert len(set(names)) == len(names)
