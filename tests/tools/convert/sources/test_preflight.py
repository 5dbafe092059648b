"""What is wrong is said before work starts: S-61 to S-66, S-70 to S-75, cases 7, 10, 14."""

from __future__ import annotations

import numpy as np
import pytest

from builders.checkpoints import build_checkpoint, build_drafter
from builders.stored_forms import Stored
from ninfer_formats.errors import UsageError
from ninfer_tools.convert.sources import resources
from ninfer_tools.convert.sources.checkpoint import open_checkpoint
from ninfer_tools.convert.sources.preflight import find_problems

TEXT = "model.language_model."


def texts(found):
    return [str(p) for p in found.problems]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"]}, "qwen3_next"),
        ({"architectures": ["Qwen3NextForCausalLM"], "model_type": None}, "qwen3_next"),
        ({"model_type": "qwen4_exp"}, "qwen4_exp"),
        ({"text_config": {"model_type": "qwen4_exp_text"}}, "qwen4_exp"),
    ],
)
def test_other_architectures_are_refused_with_a_sentence(check, change, expected):
    """S-61."""
    tiny = build_checkpoint()
    tiny.config |= change
    (text,) = texts(check(tiny))
    assert expected in text and "another architecture" in text and "config.json" in text


@pytest.mark.parametrize(
    ("key", "value"),
    [("output_gate_type", "sigmoid"), ("hidden_size", None), ("num_key_value_heads", 3)],
)
def test_config_that_cannot_be_used_is_named_by_key(check, key, value):
    """S-61."""
    tiny = build_checkpoint()
    tiny.config["text_config"][key] = value
    found = check(tiny)
    (text,) = texts(found)
    assert f"config.json.text_config.{key}" in text and "base/config.json" in text
    assert found.geometry is None and found.sources is None


def test_everything_found_is_the_default(check):
    """S-73."""
    found = check(build_checkpoint())
    assert found.components == ("text", "mtp", "vision")
    assert found.geometry.components == found.components


def test_announced_parts_without_tensors_are_left_out_with_a_notice(check):
    """S-62, S-63, S-73, case 10."""
    tiny = build_checkpoint()
    tiny.drop("mtp.", "model.visual.")
    found = check(tiny)
    assert not found.problems and found.components == ("text",)
    assert [("mtp" in n, "vision" in n) for n in found.notices] == [(True, False), (False, True)]
    assert not found.geometry.mtp and found.geometry.vision is None


def test_part_of_a_component_is_refused_not_left_out(check):
    """S-73: 14 of 15 tensors are a broken checkpoint, not a smaller one."""
    tiny = build_checkpoint()
    tiny.drop("mtp.norm.")
    (text,) = texts(check(tiny))
    assert "14 of 15" in text and "mtp.norm.weight" in text


def test_mtp_that_the_config_does_not_announce_is_used(check):
    """S-62."""
    tiny = build_checkpoint()
    tiny.config["text_config"]["mtp_num_hidden_layers"] = 0
    found = check(tiny)
    assert not found.problems and found.geometry.mtp
    assert "announces no MTP" in found.notices[0]


def test_mtp_asked_for_and_announced_nowhere_is_refused(check):
    """S-74."""
    (text,) = texts(check(build_checkpoint(mtp=False), components=["text", "mtp"]))
    assert "0 of 15 tensors found" in text and "--source mtp=" in text


def test_vision_asked_for_without_tensors_is_refused(check):
    """S-63, S-74, case 14."""
    tiny = build_checkpoint()
    tiny.drop("model.visual.")
    (text,) = texts(check(tiny, components=["text", "vision"]))
    assert "component vision is incomplete: 0 of " in text
    (text,) = texts(check(build_checkpoint(vision=False), components=["text", "vision"]))
    assert "no vision_config" in text


def test_vision_tensors_without_a_config_are_left_out_with_a_notice(check):
    """S-63."""
    tiny = build_checkpoint()
    del tiny.config["vision_config"]
    found = check(tiny)
    assert found.components == ("text", "mtp") and "no vision_config" in found.notices[0]


def test_drafter_asked_for_without_a_checkpoint_is_refused(check):
    """S-64, S-74."""
    (text,) = texts(check(build_checkpoint(), components=["text", "dflash2"]))
    assert "--source dflash2=" in text


def test_drafter_under_the_other_name_is_refused(check):
    """S-64."""
    (text,) = texts(check(build_checkpoint(), {"dflash": build_drafter()}))
    assert "this is a dflash2 drafter" in text and "--source dflash2=" in text


def test_drafter_of_another_model_is_refused(check):
    """S-64."""
    drafter = build_drafter()
    drafter.config["hidden_size"] = 64
    (text,) = texts(check(build_checkpoint(), {"dflash2": drafter}))
    assert "the target's" in text and "dflash2/config.json" in text


def test_drafter_that_lacks_tensors_is_refused(check):
    """S-64."""
    drafter = build_drafter()
    drafter.drop("candidate_selector.")
    (text,) = texts(check(build_checkpoint(), {"dflash2": drafter}))
    assert "candidate_selector.successor_codebook" in text and "of 36" in text


def test_two_drafters_are_refused(check):
    """S-64."""
    found = check(build_checkpoint(), {"dflash2": build_drafter(), "dflash": build_drafter()})
    assert any("one drafter" in text for text in texts(found))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([f"{TEXT}layers.2.input_layernorm.weight"], "number of layers (got 3 in the weights"),
        (["model.visual.blocks.7.norm1.weight"], "number of blocks (got 8 in the weights"),
    ],
)
def test_more_layers_than_the_config_says_are_refused(check, names, expected):
    """S-66, S-71."""
    tiny = build_checkpoint()
    for name in names:
        tiny.tensors[name] = Stored("BF16", np.zeros(128, "<u2"))
    (text,) = texts(check(tiny))
    assert expected in text and "want 2, as config.json says" in text


def test_more_experts_than_the_config_says_are_refused(check):
    """S-66."""
    tiny = build_checkpoint(moe=True, split_experts=True)
    tiny.config["text_config"]["num_experts"] = 3
    found = texts(check(tiny))
    assert any("number of experts (got 4 in the weights" in text for text in found)
    assert any("mlp.gate.weight" in text and "want [3, 128]" in text for text in found)


def test_fewer_layers_than_the_config_says_are_missing(check):
    """S-66."""
    tiny = build_checkpoint()
    tiny.drop(f"{TEXT}layers.1.")
    (text,) = texts(check(tiny))
    assert "component text is incomplete" in text and "layers.1.input_layernorm.weight" in text


def test_layers_of_the_other_kind_are_refused(check):
    """S-66: attention where the config says GDN."""
    tiny = build_checkpoint()
    tiny.config["text_config"]["layer_types"] = ["full_attention", "linear_attention"]
    found = " ".join(texts(check(tiny)))
    assert "layers.0.self_attn.q_proj.weight" in found
    assert "no place: model.language_model.layers.0.linear_attn" in found


def test_tensors_without_a_place_are_refused(check):
    """S-71: a bias would be lost without a word."""
    tiny = build_checkpoint()
    name = f"{TEXT}layers.1.self_attn.q_proj.bias"
    tiny.tensors[name] = Stored("BF16", np.zeros(256, "<u2"))
    found = check(tiny)
    assert f"no place: {name}" in texts(found)[0] and found.sources.extra == (name,)


@pytest.mark.parametrize(
    "name",
    [
        "layers.0.linear_attn.in_proj_a.input_scale",
        "layers.1.self_attn.k_proj.k_scale",
        "layers.1.self_attn.v_scale",
        "layers.0.linear_attn.in_proj_b.weight_scale",
    ],
)
def test_calibration_beside_plain_weights_is_listed_as_ignored(check, name):
    """S-70, case 7: whatever its shape."""
    tiny = build_checkpoint(form="modelopt_nvfp4")
    tiny.tensors[TEXT + name] = Stored("F32", np.ones(1, "<f4"))
    found = check(tiny)
    assert not found.problems and found.sources.ignored == (TEXT + name,)


def test_static_activation_scales_of_fp8_are_listed_as_ignored(check):
    """S-70: only NVFP4 has a place for them."""
    found = check(build_checkpoint(form="modelopt_fp8"))
    assert not found.problems and len(found.sources.ignored) == 13
    assert all(name.endswith("input_scale") for name in found.sources.ignored)


def test_components_left_out_may_hold_anything(check):
    """S-72."""
    tiny = build_checkpoint()
    tiny.tensors["mtp.layers.0.strange.weight"] = Stored("I32", np.zeros(4, "<i4"))
    tiny.tensors["model.visual.strange"] = Stored("I32", np.zeros(4, "<i4"))
    found = check(tiny, components=["text"])
    assert not found.problems and not found.sources.extra and not found.sources.unplaced
    strange = {"mtp.layers.0.strange.weight", "model.visual.strange"}
    assert strange < set(found.sources.ignored)


def test_all_problems_come_at_once(check):
    """S-3, S-75."""
    tiny = build_checkpoint(form="modelopt_nvfp4")
    tiny.tensors.pop(f"{TEXT}layers.1.mlp.down_proj.weight_scale_2")
    tiny.tensors[f"{TEXT}layers.1.mlp.up_proj.weight_scale_2"].words.fill(0)
    tiny.tensors.pop(f"{TEXT}norm.weight")
    tiny.tensors[f"{TEXT}layers.0.input_layernorm.weight"] = Stored("BF16", np.zeros(4, "<u2"))
    tiny.resources.pop("tokenizer.json")
    whats = " ".join(texts(check(tiny)))
    for expected in (
        "down_proj.weight_scale_2: scale is missing",
        "up_proj.weight_scale_2: scale cannot be used",
        "without model.language_model.norm.weight",
        "got [4], want [128]",
        "tokenizer.json: file is missing",
    ):
        assert expected in whats


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"components": ["text", "audio"]}, "unknown component"),
        ({"components": ["mtp"]}, "text is required"),
        ({"others": {"extra": build_checkpoint()}}, "unknown source"),
    ],
)
def test_names_nobody_knows_are_usage_errors(check, options, expected):
    """S-73."""
    with pytest.raises(UsageError, match=expected):
        check(build_checkpoint(), **options)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.mark.parametrize("section", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("place", ["text_config", "top"])
def test_scaled_positions_are_refused_wherever_they_stand(check, section, place):
    """S-80: beside sound rope_parameters too."""
    tiny = build_checkpoint()
    config = tiny.config["text_config"] if place == "text_config" else tiny.config
    config[section] = {**config.get(section, {}), **YARN}
    (text,) = texts(check(tiny))
    assert f"{section}.rope_type" in text and "got yarn" in text


def test_sections_of_positions_that_disagree_are_refused(check):
    """S-80."""
    tiny = build_checkpoint()
    tiny.config["text_config"]["rope_scaling"] = {"type": "default", "rope_theta": 5e5}
    (text,) = texts(check(tiny))
    assert "rope_scaling.rope_theta" in text and "500000" in text and "10000000" in text
    tiny.config["text_config"]["rope_scaling"] = {"type": "default"}
    assert texts(check(tiny)) == []


def test_scaled_positions_of_a_drafter_are_refused(check):
    """S-80."""
    drafter = build_drafter()
    drafter.config["rope_scaling"] = YARN
    (text,) = texts(check(build_checkpoint(), {"dflash2": drafter}))
    assert "drafter config.json.rope_scaling.rope_type" in text


@pytest.mark.parametrize(
    "name",
    [
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
        "model.language_model.layers.0.mlp.up_proj.lora_B.default.weight",
        "model.language_model.layers.0.mlp.up_proj.base_layer.weight",
        "lm_head.modules_to_save.default.weight",
    ],
)
def test_adapter_that_is_not_merged_is_refused(check, name):
    """S-81."""
    tiny = build_checkpoint()
    tiny.tensors[name] = Stored("BF16", np.zeros((8, 8), "<u2"))
    (text,) = texts(check(tiny))
    assert f"an adapter that is not merged: {name}" in text and "merge it into the weights" in text


def test_tensors_of_no_component_are_listed_and_announced(check):
    """S-82: and shown in a way that a terminal does not obey."""
    tiny = build_checkpoint()
    strange = ["LM_HEAD.weight", "model.\x1b[31m.weight", "thinker.visual.norm.weight"]
    for name in strange:
        tiny.tensors[name] = Stored("BF16", np.zeros(8, "<u2"))
    found = check(tiny)
    assert not found.problems and found.sources.ignored == tuple(sorted(strange))
    (notice,) = [n for n in found.notices if "no known component" in n]
    assert notice.startswith("3 tensors") and "LM_HEAD.weight" in notice and "\x1b" not in notice


def test_more_active_experts_than_there_are_is_refused(check):
    """S-83."""
    tiny = build_checkpoint(moe=True)
    tiny.config["text_config"]["num_experts_per_tok"] = 999
    (text,) = texts(check(tiny))
    assert "num_experts_per_tok" in text and "at most num_experts 4" in text


def test_frontend_file_that_cannot_be_read_is_one_problem(tmp_path, monkeypatch):
    """S-85."""
    folder = build_checkpoint().write(tmp_path / "m")
    monkeypatch.setattr(resources, "MAX_BYTES", (folder / "tokenizer.json").stat().st_size - 1)
    found = find_problems({"base": open_checkpoint(folder)})
    (text,) = texts(found)
    assert "m/tokenizer.json: file is too large" in text


def test_patch_size_that_is_a_text_is_shown_as_one(check):
    """S-86."""
    tiny = build_checkpoint()
    tiny.resources["preprocessor_config.json"] = b'{"patch_size": "16"}'
    (text,) = texts(check(tiny))
    assert 'got "16", want 16' in text


def test_ids_beyond_the_vocabulary_are_noted(check):
    """S-87."""
    tiny = build_checkpoint()
    tiny.config["image_token_id"] = 320
    tiny.config["text_config"]["eos_token_id"] = [319, 10**6]
    tiny.resources["generation_config.json"] = b'{"eos_token_id": [1, -1], "pad_token_id": null}'
    found = check(tiny)
    assert not found.problems
    assert [n for n in found.notices if "token ids are" in n] == [
        "config.json says image_token_id 320, but token ids are 0 to 319",
        "config.json.text_config says eos_token_id 1000000, but token ids are 0 to 319",
        "generation_config.json says eos_token_id -1, but token ids are 0 to 319",
    ]


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("{% for %} broken {{", "line 1: "),
        ("a\n{% endif %}", "line 2: "),
        ("{% generation %}{{ x }}{% endgeneration %}{% for a in b %}{% break %}{% endfor %}", None),
    ],
)
def test_template_that_does_not_compile_is_noted(check, template, fault):
    """S-87."""
    tiny = build_checkpoint()
    tiny.resources["chat_template.jinja"] = template.encode()
    found = check(tiny)
    notices = [n for n in found.notices if "does not compile" in n]
    assert not found.problems and len(notices) == (fault is not None)
    assert all(f"chat_template.jinja does not compile: {fault}" in n for n in notices)


@pytest.mark.parametrize(("divisor", "noted"), [(3e38, True), (1e33, False)])
def test_global_scale_that_leaves_nothing_is_noted(check, divisor, noted):
    """S-88."""
    tiny = build_checkpoint(form="ct_nvfp4")
    name = f"{TEXT}layers.1.mlp.down_proj.weight_global_scale"
    tiny.tensors[name].words[:] = divisor
    found = check(tiny)
    notice = f"global scales that leave no weight above 1e-30: {name}"
    assert not found.problems and any(n.endswith(notice) for n in found.notices) == noted
