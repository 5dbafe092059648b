"""Component configs: exact form, inverse, and hostile values."""

import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_formats.errors import ArtifactError
from ninfer_formats.inventories.component_configs import (
    component_configs,
    geometry_from_components,
)
from ninfer_formats.inventories.family import FAMILY_NAMES, family_geometry

DENSE = json.dumps(component_configs(family_geometry("qwen3.8-27b")))
MOE = json.dumps(component_configs(family_geometry("qwen3.6-35b-a3b")))


def test_text_config_of_a_dense_model():
    """INV-4: keys, order and the text of the two floats."""
    text = component_configs(family_geometry("qwen3.5-0.8b"))["text"]
    text["layer_types"] = text["layer_types"][:4]
    assert json.dumps(text, separators=(",", ":")) == (
        '{"architectures":["Qwen3_5ForCausalLM"],"model_type":"qwen3_5_text",'
        '"hidden_size":1024,"vocab_size":248320,"tie_word_embeddings":true,'
        '"num_hidden_layers":24,"layer_types":["linear_attention","linear_attention",'
        '"linear_attention","full_attention"],"max_position_embeddings":262144,'
        '"rms_norm_eps":9.999999974752427e-07,"num_attention_heads":8,'
        '"num_key_value_heads":2,"head_dim":256,"rope_parameters":{"rope_theta":10000000.0,'
        '"partial_rotary_factor":0.25,"mrope_section":[11,11,10]},"linear_num_key_heads":16,'
        '"linear_key_head_dim":128,"linear_num_value_heads":16,"linear_value_head_dim":128,'
        '"linear_conv_kernel_dim":4,"intermediate_size":3584}'
    )


def test_moe_replaces_the_feed_forward_keys():
    """INV-4."""
    configs = component_configs(family_geometry("qwen3.6-35b-a3b"))
    assert list(configs["text"])[-4:] == [
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "shared_expert_intermediate_size",
    ]
    assert configs["text"]["architectures"] == ["Qwen3_5MoeForCausalLM"]
    assert configs["text"]["model_type"] == "qwen3_5_moe_text"
    assert configs["mtp"] == {"architectures": ["Qwen3_5MoeMTP"]}
    assert configs["vision"]["model_type"] == "qwen3_5_moe_vision"


def test_drafter_config():
    """INV-4."""
    config = component_configs(family_geometry("qwen3.8-27b"))["dflash2"]
    assert json.dumps(config, separators=(",", ":")) == (
        '{"architectures":["DFlash2DraftModel"],"model_type":"qwen3","intermediate_size":17408,'
        '"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"num_hidden_layers":5,'
        '"rms_norm_eps":9.999999974752427e-07,"rope_parameters":{"rope_theta":10000000.0},'
        '"max_position_embeddings":262144,"layer_types":["sliding_attention",'
        '"sliding_attention","sliding_attention","sliding_attention","sliding_attention"],'
        '"sliding_window":2048,"dflash_config":{"target_layer_ids":[5,19,33,47,61],'
        '"mask_token_id":248070,"conv_kernel_size":2,"conv_group_size":16,"selector_rank":256,'
        '"selector_top_k":16}}'
    )


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_configs_read_back_to_themselves(name):
    """INV-5."""
    configs = component_configs(family_geometry(name))
    assert component_configs(geometry_from_components(configs)) == configs


def test_components_decide_what_the_model_has():
    """INV-5: an unknown component is ignored."""
    configs = json.loads(DENSE)
    geometry = geometry_from_components({"text": configs["text"], "audio": {"x": 1}})
    assert geometry.components == ("text",)
    assert geometry_from_components(configs).components == ("text", "mtp", "vision", "dflash2")


def spoil(configs, path, value):
    target = configs
    *parents, last = path.split(".")
    for key in parents:
        target = target[key]
    if value is None:
        del target[last]
    else:
        target[last] = value
    return configs


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("text", None, "text: not a JSON object (got NoneType, want an object)"),
        ("text", [], "text: not a JSON object (got list, want an object)"),
        ("text.hidden_size", None, "text.hidden_size: required key is missing"),
        ("text.hidden_size", 0, "text.hidden_size: value cannot be used (got 0"),
        ("text.hidden_size", -1, "got -1, want an integer from 1 to 2147483647"),
        ("text.hidden_size", 2**31, "got 2147483648, want an integer from 1 to 2147483647"),
        ("text.hidden_size", 5120.0, "text.hidden_size: value cannot be used (got 5120.0"),
        ("text.hidden_size", True, "text.hidden_size: value cannot be used (got True"),
        ("text.hidden_size", "5120", "text.hidden_size: value cannot be used (got 5120"),
        ("text.num_hidden_layers", 4097, "got 4097, want an integer from 1 to 4096"),
        ("text.num_hidden_layers", 63, "text.layer_types: value cannot be used"),
        ("text.layer_types", ["full"] * 64, "want 64 of linear_attention, full_attention"),
        ("text.layer_types", [None] * 64, "text.layer_types: value cannot be used"),
        ("text.layer_types", "full_attention", "text.layer_types: value cannot be used"),
        ("text.tie_word_embeddings", 1, "got 1, want true or false"),
        ("text.rms_norm_eps", 0, "text.rms_norm_eps: value cannot be used (got 0"),
        ("text.rms_norm_eps", "1e-6", "text.rms_norm_eps: value cannot be used"),
        ("text.rope_parameters", 3, "text.rope_parameters: not a JSON object"),
        ("text.rope_parameters.rope_theta", None, "text.rope_parameters.rope_theta: required"),
        ("text.rope_parameters.mrope_section", [11, 21], "want 3 integers from 0"),
        ("text.num_key_value_heads", 5, "want a divisor of num_attention_heads 24"),
        ("text.linear_num_key_heads", 7, "want a divisor of linear_num_value_heads 48"),
        ("text.intermediate_size", None, "text.intermediate_size: required key is missing"),
        ("text.num_experts", 2**30, "num_experts_per_tok: required key is missing"),
        ("vision.depth", 5000, "vision.depth: value cannot be used (got 5000"),
        ("vision.num_heads", 7, "vision.num_heads: value cannot be used (got 7"),
        ("dflash2.dflash_config", None, "dflash2.dflash_config: required key is missing"),
        ("dflash2.dflash_config.selector_rank", None, "dflash_config.selector_rank: required"),
        ("dflash2.dflash_config.target_layer_ids", [64], "want 1 to 4096 integers from 0 to 63"),
        ("dflash2.dflash_config.target_layer_ids", [], "target_layer_ids: value cannot be used"),
        ("dflash2.dflash_config.mask_token_id", 248320, "an integer from 0 to 248319"),
        ("dflash", {}, "components: an artifact holds one drafter"),
    ],
)
def test_bad_value_is_named_with_component_and_key(path, value, message):
    """INV-6."""
    with pytest.raises(ArtifactError) as caught:
        geometry_from_components(spoil(json.loads(DENSE), path, value))
    assert message in str(caught.value)


def test_number_of_experts_is_bounded_over_all_layers():
    """INV-6: 2**18 experts in the whole model, so that no list of parameters can run away."""
    configs = spoil(json.loads(MOE), "text.num_experts", 2**18 // 41 + 1)
    with pytest.raises(ArtifactError, match=r"text.num_experts.*got 6394, want at most 6393"):
        geometry_from_components(configs)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


def paths(configs, prefix=()):
    for key, value in configs.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from paths(value, (*prefix, key))


PATHS = [(source, path) for source in (DENSE, MOE) for path in paths(json.loads(source))]


@given(st.sampled_from(PATHS), JSON_VALUES)
def test_any_json_value_is_accepted_or_refused_cleanly(place, value):
    """INV-6."""
    source, path = place
    configs = json.loads(source)
    target = configs
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = deepcopy(value)
    try:
        geometry = geometry_from_components(configs)
    except ArtifactError as error:
        assert error.where
    else:
        assert geometry_from_components(component_configs(geometry)).text == geometry.text
