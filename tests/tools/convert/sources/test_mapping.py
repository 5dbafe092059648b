"""Every parameter comes from the right rows: S-40 to S-49, cases 10, 11, 13, 14, 54."""

from __future__ import annotations

import numpy as np
import pytest

from builders.checkpoints import build_checkpoint, build_drafter, describe_config, tiny_geometry
from builders.stored_forms import FORMS, Stored
from ninfer_formats.errors import UsageError
from ninfer_tools.convert.sources.geometry_reading import read_geometry
from ninfer_tools.convert.sources.mapping import map_sources
from ninfer_tools.convert.sources.prefixes import find_prefixes

TEXT, VISION = "model.language_model.", "model.visual."
HEAD, EMBEDDING = "text/output_head", "text/token_embedding"


def read(source):
    return source.read_values(0, source.rows).reshape(source.shape)


def assert_bits_equal(sources, values, names=None):
    for name in names or sources:
        found, want = read(sources[name]), values[name]
        assert np.array_equal(found.view("<u4"), want.view("<u4")), name


def sources_of(found):
    assert not found.problems, [str(p) for p in found.problems]
    return found.sources.sources


@pytest.mark.parametrize("moe", [False, True])
@pytest.mark.parametrize("form", [None, *FORMS])
def test_every_parameter_has_the_values_it_was_made_of(check, moe, form):
    """S-42 to S-46, S-50 to S-54: query and gate by heads, thirds, taps, experts, every form."""
    tiny = build_checkpoint(form=form, moe=moe)
    sources = sources_of(check(tiny))
    assert sources.keys() == tiny.values.keys()
    assert_bits_equal(sources, tiny.values)


def test_both_expert_layouts_give_the_same_bytes(check):
    """S-45, case 13."""
    stacked = sources_of(check(build_checkpoint(moe=True)))
    # The layouts draw their words in another order: put the stacked values in.
    split = build_checkpoint(moe=True, split_experts=True)
    for name in split.tensors:
        if ".experts." in name:
            layer, _, rest = name.partition(".mlp.experts.")
            expert, role, _ = rest.split(".")
            to = "mtp/layers/0" if layer.startswith("mtp") else f"text/layers/{layer[-1]}"
            source = stacked[f"{to}/moe/experts/{expert}/{role.removesuffix('_proj')}"]
            split.tensors[name] = Stored("BF16", source.read_words(0, source.rows))
    alone = sources_of(check(split))
    assert alone.keys() == stacked.keys()
    for name, source in alone.items():
        if "/experts/" in name:
            words = stacked[name].read_words(0, source.rows)
            assert np.array_equal(source.read_words(0, source.rows), words), name


def test_experts_in_both_layouts_at_once_are_refused(check):
    """S-45: neither is guessed to be the right one."""
    tiny = build_checkpoint(moe=True)
    words = np.zeros((32, 128), "<u2")
    name = f"{TEXT}layers.0.mlp.experts.0.gate_proj.weight"
    tiny.tensors[name] = Stored("BF16", words)
    (problem,) = check(tiny).problems
    assert "stored twice" in str(problem) and name in str(problem)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model.", "model."])
def test_all_three_prefixes_are_one_model(check, prefix, flat):
    """S-40, case 14."""
    tiny = build_checkpoint(vision=False)
    tiny.config = describe_config(tiny.geometry, flat=flat)
    if prefix == "language_model.model.":
        tiny.rename("lm_head.", "language_model.lm_head.")
    tiny.rename(TEXT, prefix)
    found = check(tiny)
    assert found.components == ("text", "mtp")
    assert_bits_equal(sources_of(found), tiny.values)


@pytest.mark.parametrize("prefix", ["visual.", "vision_tower.", "model.vision_tower."])
def test_vision_tower_is_found_under_its_other_names(check, prefix):
    """S-40."""
    tiny = build_checkpoint()
    tiny.rename(VISION, prefix)
    assert_bits_equal(sources_of(check(tiny)), tiny.values)


def test_unknown_prefix_is_one_line_that_names_it(check):
    """S-41, case 14."""
    tiny = build_checkpoint(vision=False, mtp=False)
    tiny.rename("", "base_model.model.")
    (problem,) = check(tiny).problems
    assert "base_model.model.model.language_model.layers." in str(problem)
    assert "language_model.model." in str(problem.want)


def test_two_prefixes_are_an_ambiguity(check):
    """S-41."""
    tiny = build_checkpoint(vision=False, mtp=False)
    tiny.tensors["model.norm.weight"] = tiny.tensors[f"{TEXT}norm.weight"]
    tiny.tensors["model.layers.0.x"] = tiny.tensors[f"{TEXT}norm.weight"]
    (problem,) = check(tiny).problems
    assert "two prefixes" in problem.what and problem.got == "model.language_model., model."


def test_prefixes_are_found_in_names_alone():
    """S-40."""
    found = find_prefixes(["model.layers.3.x", "model.visual.blocks.0.y", "model.mtp.fc.weight"])
    assert (found.text, found.vision, found.mtp) == ("model.", "model.visual.", "model.mtp.")
    assert find_prefixes([]).text is None


def test_announced_mtp_without_tensors_is_refused_when_asked_for(check):
    """S-62, S-74, case 10: the sentence says how to go on."""
    tiny = build_checkpoint()
    tiny.drop("mtp.")
    (problem,) = check(tiny, components=("text", "mtp")).problems
    assert "component mtp is incomplete: 0 of 15 tensors found" in str(problem)
    assert problem.remedy == "convert without mtp, or add --source mtp=<original>"
    assert not check(tiny, components=("text",)).problems


def test_mtp_can_come_from_the_original(check):
    """S-48, case 10."""
    tuned, original = build_checkpoint(seed=1), build_checkpoint(seed=2)
    tuned.drop("mtp.")
    sources = sources_of(check(tuned, {"mtp": original}))
    mtp = [name for name in sources if name.startswith("mtp/")]
    assert_bits_equal(sources, original.values, mtp)
    assert_bits_equal(sources, tuned.values, sources.keys() - set(mtp))


def test_mtp_source_goes_before_the_layer_of_the_base(check):
    """S-48."""
    tiny, other = build_checkpoint(seed=1), build_checkpoint(seed=2)
    sources = sources_of(check(tiny, {"mtp": other}))
    assert_bits_equal(sources, other.values, [n for n in sources if n.startswith("mtp/")])


def test_bf16_mtp_beside_quantised_text_works(check):
    """S-50, case 11: no list in the config is asked."""
    tiny = build_checkpoint(form="ct_nvfp4")
    tiny.config["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "ignore": [],
        "config_groups": {"group_0": {"targets": ["Linear"]}},
    }  # fmt: skip
    sources = sources_of(check(tiny))
    assert sources["mtp/input_projection"].kind == "direct"
    assert sources["text/layers/1/mlp/gate"].kind == "nvfp4"


def test_quantised_mtp_beside_bf16_text_works(check):
    """S-50, case 11."""
    tiny = build_checkpoint(form="hf_block", quantise=lambda n: n == "mtp.fc.weight")
    assert sources_of(check(tiny))["mtp/input_projection"].kind == "fp8_block"
    assert_bits_equal(sources_of(check(tiny)), tiny.values)


def test_quantised_checkpoint_gives_its_matrices_and_their_norms(check):
    """S-48: embedding, vision and mtp stay with the base."""
    base, other = build_checkpoint(seed=1), build_checkpoint(seed=2, form="ct_nvfp4")
    sources = sources_of(check(base, {"quantized": other}))
    taken = [n for n in sources if n.startswith("text/") and n != EMBEDDING]
    assert_bits_equal(sources, other.values, taken)
    assert_bits_equal(sources, base.values, sources.keys() - set(taken))


def test_quantised_checkpoint_may_lack_what_the_base_has(check):
    """S-48."""
    base, other = build_checkpoint(seed=1), build_checkpoint(seed=2, form="ct_row")
    other.drop(f"{TEXT}layers.1.", "lm_head", "mtp.", "model.visual.")
    sources = sources_of(check(base, {"quantized": other}))
    second = [n for n in sources if n.startswith(("text/layers/1/", HEAD))]
    assert_bits_equal(sources, base.values, second)
    assert sources["text/layers/0/mlp/down"].kind == "fp8_row"


def test_quantised_mtp_of_the_quantised_checkpoint_is_taken(check):
    """S-48: a matrix that is quantised there, wherever it belongs."""
    base = build_checkpoint(seed=1)
    other = build_checkpoint(seed=2, form="hf_block", quantise=lambda n: n == "mtp.fc.weight")
    sources = sources_of(check(base, {"quantized": other}))
    assert sources["mtp/input_projection"].kind == "fp8_block"
    assert_bits_equal(sources, base.values, ["mtp/final_norm"])


def test_drafter_comes_from_its_own_checkpoint(check):
    """S-47, S-64."""
    base, drafter = build_checkpoint(), build_drafter()
    found = check(base, {"dflash2": drafter})
    sources = sources_of(found)
    assert found.components == ("text", "mtp", "vision", "dflash2")
    own = {name for name in sources if name.startswith("dflash2/")}
    assert own == drafter.values.keys()
    assert_bits_equal(sources, base.values | drafter.values)
    shared = sources["dflash2/layers/0/attention/context_key"]
    assert shared.shared_with == "dflash2/layers/0/attention/key"


def test_proposal_head_is_rows_of_the_unquantised_head(save):
    """S-49: BF16 where any source has it."""
    is_head = {"lm_head.weight"}.__contains__
    base, other = build_checkpoint(), build_checkpoint(form="ct_row", quantise=is_head)
    checkpoints = {"base": save(base), "quantized": save(other, "quantized")}
    geometry = read_geometry(checkpoints).geometry
    ids = np.array([7, 3, 300, 3])
    sources = map_sources(geometry, ["text"], checkpoints, ids).sources
    assert sources[HEAD].kind == "fp8_row" and sources["proposal/head"].kind == "direct"
    assert np.array_equal(read(sources["proposal/head"]), base.values[HEAD][ids])
    words = sources["proposal/head"].read_words(1, 3)
    assert np.array_equal(words, base.tensors["lm_head.weight"].words[[3, 300]])


def test_proposal_head_can_be_rows_of_a_quantised_head(save):
    """S-49."""
    for form in ("ct_nvfp4", "hf_block"):
        tiny = build_checkpoint(form=form, quantise=lambda name: name == "lm_head.weight")
        checkpoints = {"base": save(tiny, form)}
        ids = np.array([130, 0, 129])
        geometry = read_geometry(checkpoints).geometry
        head = map_sources(geometry, ["text"], checkpoints, ids).sources["proposal/head"]
        assert np.array_equal(head.read_values(1, 3), tiny.values[HEAD][ids[1:]])


@pytest.mark.parametrize("ids", [[320], [-1]])
def test_proposal_ids_are_rows_of_the_head(save, ids):
    """S-49."""
    checkpoints = {"base": save(build_checkpoint())}
    geometry = read_geometry(checkpoints).geometry
    with pytest.raises(UsageError, match="0 to 319"):
        map_sources(geometry, ["text"], checkpoints, np.array(ids))


def test_tied_head_is_the_embedding(check):
    """S-65, case 54."""
    tiny = build_checkpoint(tied=True)
    found = check(tiny)
    head = sources_of(found)[HEAD]
    assert head.shared_with == EMBEDDING and found.geometry.text.tie_word_embeddings
    assert head.tensors == sources_of(found)[EMBEDDING].tensors


def test_untied_head_that_is_absent_is_refused_by_name(check):
    """S-65, case 54."""
    tiny = build_checkpoint()
    tiny.drop("lm_head.")
    (problem,) = check(tiny).problems
    assert "lm_head.weight" in str(problem) and "tie_word_embeddings false" in str(problem)


def test_tied_flag_beside_another_head_uses_the_stored_one(check):
    """S-65, case 54: and the report says so."""
    tiny = build_checkpoint(tied=False)
    tiny.config["tie_word_embeddings"] = True
    found = check(tiny)
    assert_bits_equal(sources_of(found), tiny.values)
    assert not found.geometry.text.tie_word_embeddings
    assert any("stored tensor is used" in notice for notice in found.notices)


def test_tied_flag_beside_an_equal_head_shares(check):
    """S-65."""
    tiny = build_checkpoint(tied=True)
    tiny.tensors["lm_head.weight"] = tiny.tensors[f"{TEXT}embed_tokens.weight"]
    found = check(tiny)
    assert sources_of(found)[HEAD].shared_with == EMBEDDING
    assert found.geometry.text.tie_word_embeddings and not found.notices


def test_tied_flag_beside_a_quantised_head_uses_the_stored_one(check):
    """S-65."""
    tiny = build_checkpoint(form="ct_nvfp4", quantise=lambda name: name == "lm_head.weight")
    tiny.config["tie_word_embeddings"] = True
    sources = sources_of(check(tiny))
    assert sources[HEAD].kind == "nvfp4" and sources[HEAD].shared_with is None


def test_shapes_are_named_with_what_the_config_asks_for(check):
    """S-66: transposed convolutions, as some exporters write them, among others."""
    tiny = build_checkpoint()
    conv = f"{TEXT}layers.0.linear_attn.conv1d.weight"
    dtype, words = tiny.tensors[conv]
    tiny.tensors[conv] = Stored(dtype, np.moveaxis(words, 1, 2))
    (problem,) = check(tiny).problems
    assert problem.where == conv and (problem.got, problem.want) == ([320, 4, 1], [320, 1, 4])


def test_tensor_that_several_parameters_share_is_one_problem(check):
    """S-66."""
    tiny = build_checkpoint()
    name = f"{TEXT}layers.0.linear_attn.in_proj_qkv.weight"
    tiny.tensors[name] = Stored("BF16", tiny.tensors[name].words[:-1])
    assert [p.where for p in check(tiny).problems] == [name]


def test_missing_experts_are_one_line(check):
    """S-75, case 13."""
    tiny = build_checkpoint(moe=True, split_experts=True, mtp=False)
    tiny.tensors = {n: t for n, t in tiny.tensors.items() if ".up_proj" not in n or "shared" in n}
    (problem,) = check(tiny).problems
    assert "(8 in all)" not in str(problem)
    assert str(problem).count("up_proj") == 8
    assert "mlp.experts.3.up_proj.weight" in str(problem)


def test_geometry_of_the_fixture_is_what_config_reading_finds(save):
    """S-61: the tests above look at the model that they describe."""
    for moe in (False, True):
        tiny = build_checkpoint(moe=moe)
        assert read_geometry({"base": save(tiny, f"moe-{moe}")}).geometry == tiny_geometry(moe=moe)
