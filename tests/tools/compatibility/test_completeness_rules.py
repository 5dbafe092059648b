"""Version 3 components, parameters, uses and parts: specs/other-engines.md, section 5."""

import os

import pytest

from builders.edited_artifacts import save_v3_parts, v3_root
from ninfer_formats.reader import open_artifact
from ninfer_tools.compatibility.engines import judge

BOTH = ("upstream-v3", "this")


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"profile": "nvfp4-official"},
        {"profile": "fp8", "components": ("text",), "rows": None, "layers": 4},
        {"model": "qwen3.5-0.8b", "profile": "bf16", "components": ("text", "mtp")},
    ],
)
def test_converted_files_load_in_version_3_and_here(judge_v3, engine, options):
    assert judge_v3(engine, **options).compatible


@pytest.mark.parametrize("engine", BOTH)
def test_tied_head_that_shares_the_embedding_is_whole(judge_v3, engine):
    """E-18."""

    def edit(root):
        assert root["bindings"]["text/output_head"] == root["bindings"]["text/token_embedding"]

    assert judge_v3(engine, edit, layers=4, tied=True).compatible


@pytest.mark.parametrize("engine", BOTH)
def test_partial_component_is_refused_naming_every_missing_parameter(judge_v3, engine, tmp_path):
    """E-18: dropping it is a way out."""
    gone = [f"dflash2/layers/{layer}/mlp/down" for layer in range(5)]

    def edit(root):
        for name in gone:
            del root["bindings"][name]
        root["uses"] = [use for use in root["uses"] if use["parameter"] not in gone]

    verdict = judge_v3(engine, edit)
    assert all(any(name in text for text in verdict.reasons) for name in gone)
    paths = f"{tmp_path}/new.ninfer {tmp_path}/new-v3-no-dflash2.ninfer"
    assert f"ninfer migrate {paths} --to 3 --drop dflash2" in verdict.remedies


def test_missing_text_parameters_leave_no_migration(judge_v3):
    """E-18, E-1."""

    def edit(root):
        del root["bindings"]["text/final_norm"]

    verdict = judge_v3("upstream-v3", edit, layers=4)
    assert "text/final_norm" in verdict.reasons[0]
    assert not any(command.startswith("ninfer migrate") for command in verdict.remedies)


@pytest.mark.parametrize("engine", BOTH)
def test_missing_frontend_file_is_refused_by_role(judge_v3, engine):
    """E-18."""

    def edit(root):
        del root["components"]["text"]["resources"]["tokenizer.json"]

    verdict = judge_v3(engine, edit, layers=4)
    assert any("text:tokenizer.json" in text for text in verdict.reasons)


@pytest.mark.parametrize(
    ("component", "key", "value"),
    [
        ("text", "architectures", ["LlamaForCausalLM"]),
        ("text", "architectures", ["Qwen3_5ForConditionalGeneration"]),
        ("mtp", "architectures", ["EagleModel"]),
        ("vision", "model_type", "siglip"),
        ("dflash2", "architectures", ["DFlash3DraftModel"]),
    ],
)
def test_unknown_architecture_is_refused_by_component(judge_v3, component, key, value):
    """E-17."""

    def edit(root):
        root["components"][component]["config"][key] = value

    verdict = judge_v3("upstream-v3", edit)
    assert any(f"component {component}: upstream-v3 has no model" in t for t in verdict.reasons)


def test_component_with_another_target_is_refused(judge_v3):
    """E-17."""

    def edit(root):
        root["components"]["mtp"]["target"] = "vision"

    assert "component mtp must have the target text" in judge_v3("upstream-v3", edit).reasons


@pytest.mark.parametrize("engine", BOTH)
def test_component_of_another_name_is_noted(judge_v3, engine):
    """E-17."""

    def edit(root):
        root["components"]["audio"] = {"config": {}, "target": "text"}

    verdict = judge_v3(engine, edit)
    assert verdict.compatible
    assert any("skips group audio" in text for text in verdict.notices)


@pytest.mark.parametrize("engine", BOTH)
def test_unreadable_config_is_refused_by_key(judge_v3, engine):
    """E-18."""

    def edit(root):
        del root["components"]["text"]["config"]["hidden_size"]

    verdict = judge_v3(engine, edit, layers=4)
    assert any("hidden_size" in text for text in verdict.reasons)


@pytest.mark.parametrize("engine", BOTH)
def test_four_bit_activations_need_a_divisor(judge_v3, engine):
    """E-19."""

    def edit(root):
        use = next(u for u in root["uses"] if u["parameter"] == "text/layers/0/mlp/down")
        del use["auxiliaries"]

    verdict = judge_v3(engine, edit, profile="nvfp4-official")
    assert any("text/layers/0/mlp/down @ text/layers/0/mlp/product" in t for t in verdict.reasons)


@pytest.mark.parametrize("engine", BOTH)
def test_indexed_proposal_needs_head_and_token_ids(judge_v3, engine):
    """E-20."""

    def edit(root):
        root["components"]["text"]["proposal"] = {"domain": "indexed", "rows": 131072}

    verdict = judge_v3(engine, edit, rows=None)
    assert any("proposal/head" in t and "proposal/token_ids" in t for t in verdict.reasons)


def test_proposal_rows_must_be_those_of_the_head(judge_v3):
    """E-20."""

    def edit(root):
        root["components"]["text"]["proposal"]["rows"] = 65536

    assert any("proposal/head" in text for text in judge_v3("upstream-v3", edit).reasons)


@pytest.mark.parametrize("proposal", [None, {"domain": "full"}])
def test_head_outside_an_indexed_proposal_is_noted(judge_v3, proposal):
    """E-20."""

    def edit(root):
        text = root["components"]["text"]
        del text["proposal"]
        if proposal:
            text["proposal"] = proposal

    verdict = judge_v3("upstream-v3", edit)
    assert verdict.compatible
    assert any("proposal/head is not used" in text for text in verdict.notices)


def test_proposal_that_nothing_uses_is_noted(judge_v3):
    """E-20."""
    verdict = judge_v3("upstream-v3", components=("text",), layers=4)
    assert verdict.compatible
    assert any("neither mtp nor a drafter" in text for text in verdict.notices)


def test_two_drafters_are_refused(judge_v3):
    def edit(root):
        config = root["components"]["dflash2"]["config"]
        config = {**config, "architectures": ["DFlashDraftModel"]}
        root["components"]["dflash"] = {"config": config, "target": "text"}

    verdict = judge_v3("upstream-v3", edit)
    assert any("holds one drafter" in text for text in verdict.reasons)


@pytest.mark.parametrize("engine", BOTH)
def test_missing_and_foreign_parts_are_refused(tmp_path, engine):
    """E-21."""
    root = v3_root(layers=4, components=("text",), rows=None)
    path, part = save_v3_parts(tmp_path / "split.ninfer", root, 8192)
    assert judge(open_artifact(path), engine).compatible
    with part.open("r+b") as file:
        file.seek(16)
        file.write(b"another artifact")
    foreign = judge(open_artifact(path), engine)
    assert any("does not belong to this entry" in text for text in foreign.reasons)
    os.truncate(part, 4096)
    assert any("part is 4096 bytes" in t for t in judge(open_artifact(path), engine).reasons)
    part.unlink()
    assert any("part is missing" in t for t in judge(open_artifact(path), engine).reasons)


def test_file_without_any_text_is_refused_by_this_release(tmp_path):
    from builders.sparse_files import legacy_objects, save_legacy

    text = [
        item.id
        for item in legacy_objects("3.8 int")
        if item.id.startswith("text/") and "draft_head" not in item.id
    ]
    text += [f"frontend/{n}" for n in ("tokenizer.json", "tokenizer_config.json")]
    text += [f"frontend/{n}" for n in ("chat_template.jinja", "generation_config.json")]
    path = save_legacy(tmp_path / "x.ninfer", "3.8 int", without=tuple(text))
    verdict = judge(open_artifact(path), "this")
    assert not verdict.compatible
    assert verdict.reasons == ("artifact has no text group",)
