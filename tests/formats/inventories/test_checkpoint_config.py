"""Geometry of a checkpoint's config.json."""

from copy import deepcopy

import pytest

from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.checkpoint_config import drafter_from_config, geometry_from_config
from ninfer_formats.inventories.family import family_geometry

TEXT = {
    "hidden_size": 5120,
    "vocab_size": 248320,
    "num_hidden_layers": 64,
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-6,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000000,
        "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    },
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_num_value_heads": 48,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "intermediate_size": 17408,
    "mtp_num_hidden_layers": 1,
}
VISION = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "num_position_embeddings": 2304,
    "out_hidden_size": 5120,
    "in_channels": 3,
    "deepstack_visual_indexes": [],
    "hidden_act": "gelu_pytorch_tanh",
}
DRAFTER = {
    "architectures": ["DFlash2DraftModel"],
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 5,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 10000000, "rope_type": "default"},
    "max_position_embeddings": 262144,
    "layer_types": ["sliding_attention"] * 5,
    "sliding_window": 2048,
    "dflash_config": {
        "block_size": 8,
        "mask_token_id": 248070,
        "target_layer_ids": [5, 19, 33, 47, 61],
        "conv_kernel_size": 2,
        "conv_group_size": 16,
        "selector_rank": 256,
        "selector_top_k": 16,
    },
}


def nested(**changes):
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": deepcopy(TEXT) | changes,
        "vision_config": deepcopy(VISION),
    }


def flat(**changes):
    return {"architectures": ["Qwen3_5ForCausalLM"], **deepcopy(TEXT), **changes}


def test_nested_config_gives_the_family_geometry():
    """INV-3."""
    expected = family_geometry("qwen3.8-27b")
    found = geometry_from_config(nested())
    assert (found.text, found.vision, found.mtp) == (expected.text, expected.vision, True)


def test_flat_config_is_text_only():
    """INV-3."""
    found = geometry_from_config(flat())
    assert found.text == family_geometry("qwen3.8-27b").text
    assert found.components == ("text", "mtp")


def test_moe_config():
    """INV-3."""
    sizes = {
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    }
    config = flat(**sizes) | {"architectures": ["Qwen3_5MoeForCausalLM"]}
    text = geometry_from_config(config).text
    assert (text.num_experts, text.num_experts_per_tok, text.intermediate_size) == (256, 8, None)


def test_absent_keys_have_the_documented_meaning():
    """INV-3: interval 4, eps 1e-6, partial factor 0.25, theta 1e7, untied, no MTP."""
    config = flat(rope_parameters={"mrope_section": [11, 11, 10]})
    del config["rms_norm_eps"], config["mtp_num_hidden_layers"]
    found = geometry_from_config(config)
    assert found.text == family_geometry("qwen3.8-27b").text
    assert not found.mtp


def test_rope_keys_may_lie_in_rope_scaling_or_in_the_text_config():
    """INV-3."""
    expected = family_geometry("qwen3.8-27b").text
    rope = TEXT["rope_parameters"]
    scaling = flat(rope_scaling=rope)
    del scaling["rope_parameters"]
    spread = flat(**{k: rope[k] for k in ("rope_theta", "partial_rotary_factor", "mrope_section")})
    del spread["rope_parameters"]
    assert geometry_from_config(scaling).text == expected
    assert geometry_from_config(spread).text == expected


def test_explicit_layer_types_win_over_the_interval():
    """INV-3."""
    types = ["full_attention", "linear_attention"]
    config = flat(num_hidden_layers=2, layer_types=types, full_attention_interval=4)
    assert geometry_from_config(config).text.layer_types == tuple(types)
    config = flat(num_hidden_layers=4, full_attention_interval=2)
    assert geometry_from_config(config).text.layer_types[1::2] == ("full_attention",) * 2


@pytest.mark.parametrize(("outer", "inner", "tied"), [(None, True, True), (False, True, False)])
def test_outer_tie_flag_wins(outer, inner, tied):
    """INV-3."""
    config = nested(tie_word_embeddings=inner) | {"tie_word_embeddings": outer}
    assert geometry_from_config(config).text.tie_word_embeddings is tied


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu"}, "text_config.hidden_act: value cannot be used (got gelu"),
        ({"output_gate_type": "sigmoid"}, "want absent, silu, swish"),
        ({"attn_output_gate": False}, "text_config.attn_output_gate"),
        ({"mamba_ssm_dtype": "bfloat16"}, "text_config.mamba_ssm_dtype"),
        ({"mtp_use_dedicated_embeddings": True}, "mtp_use_dedicated_embeddings"),
        ({"mtp_num_hidden_layers": 2}, "mtp_num_hidden_layers: value cannot be used (got 2"),
        ({"hidden_size": "5120"}, "text_config.hidden_size"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters.rope_type"),
        ({"rope_parameters": {}}, "rope_parameters.mrope_section: required key is missing"),
        ({"rope_parameters": {"mrope_section": [10, 11, 11]}}, "got [10, 11, 11], want three"),
        ({"rope_parameters": {"mrope_section": [11, 11, 11]}}, "sum to 32"),
    ],
)
def test_what_the_arithmetic_cannot_do_is_refused_by_key(change, message):
    """INV-6."""
    with pytest.raises(NinferError) as caught:
        geometry_from_config(nested(**change))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("deepstack_visual_indexes", [5]),
        ("out_hidden_size", 4096),
        ("num_position_embeddings", 2305),
        ("num_heads", 64),
        ("in_channels", 1),
    ],
)
def test_vision_tower_of_another_kind_is_refused_by_key(key, value):
    """INV-6."""
    config = nested()
    config["vision_config"][key] = value
    with pytest.raises(NinferError, match=rf"vision_config\.{key}"):
        geometry_from_config(config)


@pytest.mark.parametrize("sections", [[11, 11, 10], [12, 10, 10]])
def test_sections_inside_the_interleaved_pattern_pass(sections):
    """INV-3."""
    config = flat(rope_parameters={"mrope_section": sections})
    assert geometry_from_config(config).text.mrope_section == tuple(sections)


def test_other_architectures_are_refused():
    """INV-6."""
    with pytest.raises(NinferError, match=r"config.json.architectures.*Qwen3ForCausalLM"):
        geometry_from_config({"architectures": ["Qwen3ForCausalLM"]})


def test_drafter_config_gives_the_family_drafter():
    """INV-3."""
    target = family_geometry("qwen3.8-27b")
    assert drafter_from_config(DRAFTER, target.text) == target.drafter


def test_drafter_of_another_target_is_refused():
    """INV-6."""
    small = family_geometry("qwen3.5-0.8b").text
    with pytest.raises(NinferError, match=r"hidden_size.*got 5120, want 1024, the target's"):
        drafter_from_config(DRAFTER, small)
    with pytest.raises(NinferError, match=r"architectures.*LlamaForCausalLM"):
        drafter_from_config({"architectures": ["LlamaForCausalLM"]}, small)
