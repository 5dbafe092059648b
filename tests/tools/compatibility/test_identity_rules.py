"""Identities, shared identities and descriptors: specs/other-engines.md, section 3."""

import pytest

from builders.edited_artifacts import find_object, lay_again

EMBEDDING = "text/token_embedding"


@pytest.mark.parametrize("engine", ["upstream-v2", "upstream-v2-dflash2"])
@pytest.mark.parametrize(
    ("model_id", "weights_id"),
    [("qwen3.6-27b", "groupwise-int"), ("qwen3.6-27b", "nvfp4"), ("qwen3.8-27b", "nvfp4")],
)
def test_official_files_load_in_version_2_engines(judge_legacy, engine, model_id, weights_id):
    assert judge_legacy(engine, model_id, weights_id).compatible


@pytest.mark.parametrize("engine", ["upstream-v1", "this"])
def test_version_1_file_loads_in_its_engine_and_here(judge_legacy, engine):
    assert judge_legacy(engine, "qwen3.6-27b", version=1).compatible


def test_identity_without_a_contract_is_named(judge_legacy):
    """E-8: qwen3.8-27b came after version 1."""
    verdict = judge_legacy("upstream-v1", version=1)
    assert "identity qwen3.8-27b/groupwise-int is not registered" in verdict.reasons[0]
    assert any("qwen3.6-35b-a3b" in text for text in verdict.notices)


@pytest.mark.parametrize("engine", ["upstream-v2", "this"])
def test_fork_identity_is_explained(judge_legacy, engine):
    """E-8, E-3."""

    def edit(root):
        root["identity"]["weights_id"] = "gguf-q4-k-m"

    verdict = judge_legacy(engine, edit=edit)
    assert len(verdict.reasons) == 1
    assert "qwen3.8-27b/gguf-q4-k-m is not registered" in verdict.reasons[0]
    assert "fork that keeps GGUF blocks" in verdict.reasons[0]
    assert verdict.remedies == ()


@pytest.mark.parametrize("engine", ["upstream-v2", "upstream-v2-dflash2"])
def test_community_form_is_told_from_the_official_one_by_its_embedding(judge_legacy, engine):
    """E-9."""
    verdict = judge_legacy(engine, "qwen3.8-27b", "nvfp4", form="w8-nvfp4")
    assert not verdict.compatible
    assert "community form" in verdict.reasons[0]
    assert f"{EMBEDDING} is q8_g32_fp16" in verdict.reasons[0]
    assert any("Ostfralla" in text for text in verdict.notices)
    assert any("upgrade tool refuses its 1307 objects" in text for text in verdict.notices)
    assert verdict.remedies == (
        "hf download neroued/Qwen3.8-27B-nvfp4-NInfer qwen3_8_27b_nvfp4.ninfer "
        "--revision 204e3d92c30d9d05f3300d2f52e443ad1edf6ddf",
    )


def test_community_form_is_read_here_and_goes_to_version_3(judge_legacy):
    """E-9, E-6."""
    community = ("qwen3.8-27b", "nvfp4")
    assert judge_legacy("this", *community, form="w8-nvfp4").compatible
    verdict = judge_legacy("upstream-v3", *community, form="w8-nvfp4")
    assert verdict.remedies[0].endswith("--to 3")


def _embed_in_bf16(root):
    find_object(root, EMBEDDING).update(format="BF16", layout="contiguous-le-v1")
    lay_again(root)


@pytest.mark.parametrize("engine", ["upstream-v2", "this"])
def test_descriptor_mismatch_names_object_both_descriptors_and_producer(judge_legacy, engine):
    """E-13."""
    verdict = judge_legacy(engine, edit=_embed_in_bf16)
    assert verdict.reasons == (
        "tensor text/token_embedding does not match the contract: found [248320, 5120] bf16 "
        "contiguous_le_v1, expected [248320, 5120] q8_g32_fp16 row_split_k128_v1; "
        "producer: none recorded",
    )
    assert any(command.startswith("hf download") for command in verdict.remedies)


def test_every_mismatched_tensor_is_named(judge_legacy):
    """E-13: past eight, by name only."""

    def edit(root):
        for layer in range(12):
            find_object(root, f"text/layers/{layer}/input_norm")["shape"] = [5119]
        lay_again(root)

    verdict = judge_legacy("upstream-v2", edit=edit)
    assert len(verdict.reasons) == 9
    assert "4 more differ" in verdict.reasons[-1]
    assert "text/layers/11/input_norm" in verdict.reasons[-1]


def test_producer_of_a_version_3_file_is_told(judge_v3):
    """E-13."""

    def edit(root):
        norm = root["bindings"]["text/final_norm"]["object"]
        find_object(root, norm)["shape"] = [5119]
        lay_again(root)

    verdict = judge_v3("upstream-v3", edit, layers=4)
    assert "parameter text/final_norm" in verdict.reasons[0]
    assert "[5119]" in verdict.reasons[0]
    assert "[5120]" in verdict.reasons[0]
    assert "producer: ninfer-v3" in verdict.notices
