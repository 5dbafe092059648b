"""Specifications say what to make in one line, and refuse what they do not know."""

from __future__ import annotations

import pytest

from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.family import FAMILY_NAMES, family_geometry
from ninfer_formats.inventories.profiles import PROFILE_NAMES
from ninfer_tools.synthetic.specification import KEYS, SyntheticSpec, parse_spec


def test_defaults_are_the_whole_model_without_its_drafter():
    assert parse_spec("qwen3.8-27b:nvfp4") == SyntheticSpec(
        "qwen3.8-27b", "nvfp4", None, 0, 248077, ("text", "mtp", "vision"), 131072
    )


def test_every_key_has_an_effect():
    text = "qwen3.8-27b:bf16:layers=4:seed=9:vocab=4000:components=text+mtp:proposal=64:dflash2=1"
    assert parse_spec(text) == SyntheticSpec(
        "qwen3.8-27b", "bf16", 4, 9, 4000, ("text", "mtp", "dflash2"), 64
    )


@pytest.mark.parametrize("model", FAMILY_NAMES)
@pytest.mark.parametrize("profile", PROFILE_NAMES)
def test_every_model_and_profile_is_accepted(model, profile):
    geometry = parse_spec(f"{model}:{profile}").geometry()
    assert geometry.text == family_geometry(model).text


def test_layers_keep_the_pattern_of_layer_types():
    text = parse_spec("qwen3.8-27b:bf16:layers=5").geometry().text
    assert [kind[0] for kind in text.layer_types] == list("lllfl")


def test_small_vocabulary_moves_rows_and_the_mask_of_the_drafter():
    spec = parse_spec("qwen3.8-27b:bf16:vocab=4000:dflash2=1")
    geometry = spec.geometry()
    assert geometry.drafter is not None
    assert geometry.text.vocab_size == 4096
    assert geometry.drafter.mask_token_id == spec.vocabulary.added_id("<|audio_start|>") == 3993


def test_a_mask_past_the_last_id_still_has_a_row():
    geometry = parse_spec("qwen3.6-35b-a3b:bf16:vocab=4096:dflash=1").geometry()
    assert geometry.drafter is not None
    assert geometry.drafter.mask_token_id == 4096 < geometry.text.vocab_size == 4352


def test_proposal_zero_means_no_draft_head():
    assert parse_spec("qwen3.8-27b:bf16:proposal=0").proposal is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("qwen9:bf16", FAMILY_NAMES[-1]),
        ("", "unknown model"),
        ("qwen3.8-27b", "groupwise-int"),
        ("qwen3.8-27b:int3", "nvfp4-official"),
        ("qwen3.8-27b:bf16:layer=4", ", ".join(KEYS)),
        ("qwen3.8-27b:bf16:layers", "once as key=value"),
        ("qwen3.8-27b:bf16:seed=1:seed=2", "once as key=value"),
        ("qwen3.8-27b:bf16:layers=0", "an integer from 1 to 4096"),
        ("qwen3.8-27b:bf16:layers=٤", "an integer from 1 to 4096"),
        ("qwen3.8-27b:bf16:seed=" + "9" * 5000, "an integer from 0"),
        ("qwen3.8-27b:bf16:vocab=288", "an integer from 289"),
        ("qwen3.8-27b:bf16:proposal=20", "0 or 21 to 248077"),
        ("qwen3.8-27b:bf16:dflash=1", "component of qwen3.8-27b"),
        ("qwen3.8-27b:bf16:dflash2=yes", "0 or 1"),
        ("qwen3.8-27b:bf16:components=mtp", "component text is required"),
        ("qwen3.8-27b:bf16:components=", "component of qwen3.8-27b"),
    ],
)
def test_unknown_or_impossible_parts_are_refused_in_one_line(text, message):
    with pytest.raises(UsageError) as caught:
        parse_spec(text)
    assert message in str(caught.value) and "\n" not in str(caught.value)
