"""Missing, partial, unknown and absent groups: specs/other-engines.md, section 3."""

import pytest

from builders.edited_artifacts import drop_objects, find_object
from ninfer_formats.inventories.registered import registered_inventory

DFLASH2 = registered_inventory("qwen3.8-27b", "groupwise-int").groups["dflash2"]


def _add_group(root, name):
    norm = find_object(root, "text/final_norm")
    last = root["objects"][-1]
    offset = -(-(last["offset"] + last["bytes"]) // 256) * 256
    root["objects"].append({**norm, "name": name, "offset": offset})


def test_missing_objects_are_all_named(judge_legacy):
    """E-10."""
    gone = [f"text/layers/{layer}/mlp/down" for layer in range(20)] + ["frontend/tokenizer.json"]

    def edit(root):
        drop_objects(root, *gone)

    verdict = judge_legacy("upstream-v2", edit=edit)
    assert "21 required objects are missing" in verdict.reasons[0]
    assert all(name in verdict.reasons[0] for name in gone)
    assert "required artifact object is missing: frontend/tokenizer.json" in verdict.reasons[0]
    assert verdict.remedies[0].startswith("hf download neroued/Qwen3.8-27B-NInfer")


@pytest.mark.parametrize("group", ["vision", "mtp", "proposal"])
def test_version_2_contract_needs_every_base_group(judge_legacy, group):
    """E-10: an absent group counts as missing objects there, here it is simply absent."""
    rest = tuple(g for g in ("text", "proposal", "mtp", "vision") if g != group)
    assert not judge_legacy("upstream-v2", groups=rest).compatible


def test_partial_drafter_is_refused_naming_every_missing_object(judge_legacy, tmp_path):
    """E-10: the rest is a whole file, so dropping the group is a way out."""

    def edit(root):
        drop_objects(root, *DFLASH2[2:])

    for engine, version in (("upstream-v2-dflash2", 2), ("this", 3)):
        verdict = judge_legacy(engine, groups=None, edit=edit)
        text = " ".join(verdict.reasons)
        assert "dflash2 is partial" in text
        assert all(name in text for name in DFLASH2[2:])
        output = f"{tmp_path}/old-v{version}-no-dflash2.ninfer"
        command = f"ninfer migrate {tmp_path}/old.ninfer {output} --to {version} --drop dflash2"
        assert command in verdict.remedies


def test_dflash2_is_not_consumed_by_the_engine_before_it(judge_legacy, tmp_path):
    """E-11, E-7."""
    verdict = judge_legacy("upstream-v2", groups=None)
    quoted = "artifact object was not consumed by the selected target: dflash2/feature_projection"
    assert quoted in verdict.reasons[0]
    paths = f"{tmp_path}/old.ninfer {tmp_path}/old-v2-no-dflash2.ninfer"
    assert verdict.remedies == (
        f"ninfer migrate {paths} --to 2 --drop dflash2",
        "hf download neroued/Qwen3.8-27B-NInfer qwen3_8_27b.ninfer "
        "--revision 3526913004b1cf552cb57b88d6a5c6f5e4a89a70",
    )


def test_dflash2_loads_where_it_is_known(judge_legacy):
    assert judge_legacy("upstream-v2-dflash2", groups=None).compatible
    assert judge_legacy("this", groups=None).compatible


def test_unknown_group_is_refused_by_the_original_and_skipped_here(judge_legacy):
    """E-11."""

    def edit(root):
        _add_group(root, "audio/tower")

    verdict = judge_legacy("upstream-v2", edit=edit)
    assert "unknown group audio" in verdict.reasons[0]
    assert "not consumed by the selected target: audio/tower" in verdict.reasons[0]
    here = judge_legacy("this", edit=edit)
    assert here.compatible
    assert any("skips group audio" in text for text in here.notices)


@pytest.mark.parametrize("engine", ["upstream-v2", "this"])
def test_unknown_object_in_a_known_group_is_refused_everywhere(judge_legacy, engine):
    """E-11: the file is not what its identity says."""

    def edit(root):
        _add_group(root, "text/extra_norm")

    verdict = judge_legacy(engine, edit=edit)
    assert any("text/extra_norm" in text for text in verdict.reasons)


@pytest.mark.parametrize(
    ("model_id", "engine", "spec"),
    [
        ("qwen3.6-35b-a3b", "upstream-v2", "dflash"),
        ("qwen3.8-27b", "upstream-v2-dflash2", "dflash2"),
    ],
)
def test_absent_drafter_is_accepted_and_its_spec_called_unavailable(
    judge_legacy, model_id, engine, spec
):
    """E-12: the 889 objects before DFlash, and 1124 before DFlash2."""
    verdict = judge_legacy(engine, model_id)
    assert verdict.compatible
    assert f"the file has no {spec} group: --spec {spec} is not available" in verdict.notices
