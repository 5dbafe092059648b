"""Laws of completeness: what every group lacks is named, and nothing whole is refused."""

from __future__ import annotations

import pytest

from builders.artifact_bytes import legacy_bytes, save, save_multi_file, small_legacy_root
from builders.edited_artifacts import (
    drop_objects,
    find_object,
    lay_again,
    save_legacy,
    save_v3,
    v3_root,
)
from ninfer_formats.completeness import Examination, find_missing, ready_problems
from ninfer_formats.group_state import GroupState, name_all
from ninfer_formats.ownership import UNREFERENCED, own_objects
from ninfer_formats.reader import open_artifact

KNOWN = ("text", "proposal", "mtp", "vision", "dflash", "dflash2")
SMALL = {"layers": 4, "components": ("text", "vision", "mtp", "dflash2")}


def open_v3(tmp_path, edit=None, **options):
    root = v3_root(**(SMALL | options))
    if edit is not None:
        edit(root)
    return open_artifact(save_v3(tmp_path / "m.ninfer", root))


def open_legacy(tmp_path, edit=None, **options):
    path = save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b", groups=None, edit=edit, **options)
    return open_artifact(path)


def state_of(artifact, group) -> GroupState:
    return next(state for state in find_missing(artifact) if state.group == group)


def messages(artifact):
    return [str(problem) for problem in ready_problems(artifact)]


@pytest.mark.parametrize("version", [2, 3])
def test_whole_artifact_has_no_problem(tmp_path, version):
    artifact = open_v3(tmp_path) if version == 3 else open_legacy(tmp_path)
    states = {state.group: state.state for state in find_missing(artifact)}
    assert tuple(states) == KNOWN
    assert states == dict.fromkeys(KNOWN, "complete") | {"dflash": "absent"}
    assert ready_problems(artifact) == []
    assert Examination(artifact).notices == []


@pytest.mark.parametrize("version", [2, 3])
def test_counts_add_up_to_the_whole_file(tmp_path, version):
    artifact = open_v3(tmp_path) if version == 3 else open_legacy(tmp_path)
    states = find_missing(artifact)
    assert sum(state.objects for state in states) == len(artifact.objects)
    assert sum(state.bytes for state in states) == sum(i.bytes for i in artifact.objects.values())


def test_registered_counts_are_those_of_the_inventory(tmp_path):
    counts = {state.group: state.objects for state in find_missing(open_legacy(tmp_path))}
    assert counts == {
        "text": 775,
        "proposal": 2,
        "mtp": 12,
        "vision": 335,
        "dflash": 0,
        "dflash2": 66,
    }


def test_every_missing_object_of_a_partial_group_is_named(tmp_path):
    lost = [f"dflash2/layers/{layer}/mlp/down" for layer in range(5)] + ["dflash2/final_norm"]
    artifact = open_legacy(tmp_path, lambda root: drop_objects(root, *lost))
    assert state_of(artifact, "dflash2").state == "partial"
    assert state_of(artifact, "dflash2").missing == tuple(lost)
    (message,) = messages(artifact)
    assert message.startswith("group dflash2 is partial: 6 missing: ")
    assert all(name in message for name in lost)


def test_a_long_list_of_missing_objects_is_named_completely(tmp_path):
    artifact = open_legacy(tmp_path, lambda root: _keep(root, "dflash2/", 1))
    missing = state_of(artifact, "dflash2").missing
    assert len(missing) == 65
    text = messages(artifact)
    assert len(text) > 1
    assert all(len(line) < 2000 and "\n" not in line for line in text)
    named = [name for line in text for name in line.split(": ")[-1].split(", ")]
    assert named == list(missing)


def _keep(root, prefix, count):
    group = [item["name"] for item in root["objects"] if item["name"].startswith(prefix)]
    drop_objects(root, *group[count:])


def test_names_longer_than_a_message_still_get_one_each():
    assert [str(e) for e in name_all("missing", ["a" * 1700, "b"], "g")] == [
        f"g: 1 of 2 missing: {'a' * 1700}",
        "g: 1 of 2 missing: b",
    ]


def test_missing_frontend_file_makes_text_partial(tmp_path):
    edit = lambda root: drop_objects(root, "frontend/tokenizer.json")  # noqa: E731
    assert state_of(open_legacy(tmp_path, edit), "text").missing == ("frontend/tokenizer.json",)


def test_tensor_of_another_format_is_a_fault_with_both_descriptors(tmp_path):
    def edit(root):
        item = find_object(root, "text/token_embedding")
        item |= {"format": "BF16", "layout": "contiguous-le-v1"}
        lay_again(root)

    artifact = open_legacy(tmp_path, edit)
    assert state_of(artifact, "text").state == "partial"
    assert messages(artifact) == [
        "object text/token_embedding: tensor is not the registered one "
        "(got bf16 [248320, 5120], want q8_g32_fp16 [248320, 5120])"
    ]


def test_object_the_inventory_does_not_have_is_a_fault(tmp_path):
    def edit(root):
        find_object(root, "text/final_norm")["name"] = "text/last_norm"

    text = messages(open_legacy(tmp_path, edit))
    assert text == [
        "group text is partial: 1 missing: text/final_norm",
        "object text/last_norm: qwen3.8-27b/groupwise-int has no such object",
    ]


def test_object_of_the_wrong_kind_is_a_fault(tmp_path):
    def edit(root):
        record = find_object(root, "frontend/tokenizer.json")
        record.pop("encoding")
        record |= {"kind": "tensor", "shape": [4], "format": "BF16", "layout": "contiguous-le-v1"}
        record["bytes"] = 8

    text = messages(open_legacy(tmp_path, edit))
    assert text == ["object frontend/tokenizer.json: object is of the wrong kind "
                    "(got tensor, want resource)"]  # fmt: skip


def test_unknown_group_is_skipped_with_a_notice(tmp_path):
    def edit(root):
        extra = dict(find_object(root, "text/final_norm"))
        extra |= {"name": "dflash3/gate", "format": "T2", "bytes": 5}
        root["objects"].append(extra)
        lay_again(root)

    artifact = open_legacy(tmp_path, edit)
    assert state_of(artifact, "dflash3").state == "unknown"
    assert state_of(artifact, "dflash3").objects == 1
    assert messages(artifact) == []
    group, unknown_format = Examination(artifact).notices
    assert group.startswith("group dflash3 is skipped: ")
    assert "unknown numeric format (got T2" in unknown_format


def test_drafter_that_an_identity_does_not_have_is_skipped(tmp_path):
    def edit(root):
        root["objects"].append(dict(find_object(root, "text/final_norm")) | {"name": "dflash/x"})
        lay_again(root)

    path = save_legacy(tmp_path / "m.ninfer", "qwen3.6-27b", groups=None, edit=edit)
    states = [state for state in find_missing(open_artifact(path)) if state.group == "dflash"]
    assert [state.state for state in states] == ["unknown"]


def test_unregistered_identity_is_unreadable_but_counted(tmp_path):
    root = small_legacy_root()
    root["identity"]["weights_id"] = "folded-ternary"
    artifact = open_artifact(save(tmp_path / "m.ninfer", legacy_bytes(2, root, bytes(1808))))
    text = state_of(artifact, "text")
    assert (text.state, text.objects) == ("unreadable", 3)
    assert "qwen3.8-27b/folded-ternary is not registered" in messages(artifact)[0]
    assert state_of(artifact, "dflash2").state == "absent"


def test_bytes_behind_the_last_object_are_a_notice(tmp_path):
    path = save_legacy(tmp_path / "m.ninfer", "qwen3.8-27b")
    with path.open("ab") as file:
        file.truncate(path.stat().st_size + 10)
    artifact = open_artifact(path)
    assert ready_problems(artifact) == []
    assert Examination(artifact).notices == ["bytes behind the last object: 10"]


def _unbind(root, name):
    del root["bindings"][name]
    root["uses"] = [use for use in root["uses"] if use["parameter"] != name]


def test_unbound_parameters_and_missing_roles_of_a_component_are_named(tmp_path):
    def edit(root):
        _unbind(root, "mtp/final_norm")
        _unbind(root, "text/layers/3/attention/key")
        del root["components"]["text"]["resources"]["chat_template.jinja"]

    artifact = open_v3(tmp_path, edit)
    assert state_of(artifact, "mtp").missing == ("mtp/final_norm",)
    assert state_of(artifact, "text").missing == (
        "text/layers/3/attention/key",
        "text:chat_template.jinja",
    )


def test_component_without_any_parameter_is_partial_not_absent(tmp_path):
    def edit(root):
        for name in [name for name in root["bindings"] if name.startswith("mtp/")]:
            _unbind(root, name)

    state = state_of(open_v3(tmp_path, edit), "mtp")
    assert state.state == "partial"
    assert "mtp/layers/0/attention/query" in state.missing


def test_parameters_without_a_component_are_a_notice(tmp_path):
    def edit(root):
        del root["components"]["mtp"]

    artifact = open_v3(tmp_path, edit)
    assert state_of(artifact, "mtp").state == "absent"
    assert messages(artifact) == []
    assert "group mtp is skipped: has parameters, but no component declares it" in (
        Examination(artifact).notices
    )


def test_shape_against_the_config_is_a_fault(tmp_path):
    def edit(root):
        root["components"]["text"]["config"]["vocab_size"] -= 256

    faults = [str(fault) for fault in state_of(open_v3(tmp_path, edit), "text").faults]
    assert faults[0] == (
        "parameter text/token_embedding: shape is not the one its config asks for "
        "(got [248320, 5120], want [248064, 5120])"
    )
    assert len(faults) == 2


def test_part_of_another_length_is_a_fault(tmp_path):
    def edit(root):
        root["bindings"]["text/layers/3/attention/key"]["parts"][0]["range"][1] -= 5120

    (fault,) = state_of(open_v3(tmp_path, edit), "text").faults
    assert "element count" in str(fault) and "want 5242880 = [1024, 5120]" in str(fault)


def test_proposal_rows_must_be_those_of_its_head(tmp_path):
    def edit(root):
        root["components"]["text"]["proposal"]["rows"] = 1000

    faults = [str(fault) for fault in state_of(open_v3(tmp_path, edit), "proposal").faults]
    assert [line.split(":")[0] for line in faults] == [
        "parameter proposal/head",
        "parameter proposal/token_ids",
    ]


def test_proposal_larger_than_the_vocabulary_is_unreadable(tmp_path):
    def edit(root):
        root["components"]["text"]["proposal"]["rows"] = 10**6

    artifact = open_v3(tmp_path, edit)
    assert state_of(artifact, "proposal").state == "unreadable"
    assert state_of(artifact, "text").state == "complete"


def test_full_proposal_needs_no_head(tmp_path):
    artifact = open_v3(tmp_path, rows=None)
    assert state_of(artifact, "proposal").state == "absent"
    assert messages(artifact) == []


@pytest.mark.parametrize(
    ("component", "key", "spoiled"),
    [
        ("vision", "depth", ["vision"]),
        ("dflash2", "dflash_config", ["dflash2"]),
        ("text", "hidden_size", ["text", "proposal", "mtp", "vision", "dflash2"]),
    ],
)
def test_unreadable_config_spoils_its_own_group_only(tmp_path, component, key, spoiled):
    def edit(root):
        del root["components"][component]["config"][key]

    artifact = open_v3(tmp_path, edit)
    states = find_missing(artifact)
    assert [state.group for state in states if state.state == "unreadable"] == spoiled
    assert f"{component}.{key}: required key is missing" in messages(artifact)[0]


def test_unknown_architecture_is_said(tmp_path):
    def edit(root):
        root["components"]["text"]["config"]["architectures"] = ["LlamaForCausalLM"]

    reason = state_of(open_v3(tmp_path, edit), "text").reason or ""
    assert "unknown architecture (got LlamaForCausalLM" in reason


def test_unknown_component_is_skipped_and_its_formats_are_notices(tmp_path):
    def edit(root):
        root["components"]["dflash3"] = {"config": {}, "target": "text"}
        record = {"id": "w", "shape": [4], "format": "t2_g128_fp16", "layout": "x"}
        root["objects"].append({**record, "offset": 0, "bytes": 7, "kind": "tensor"})
        root["bindings"]["dflash3/w"] = {"object": "w"}
        lay_again(root)

    artifact = open_v3(tmp_path, edit)
    assert state_of(artifact, "dflash3").objects == 1
    assert messages(artifact) == []
    assert any("of a fork" in notice for notice in Examination(artifact).notices)


def test_unknown_format_in_a_known_group_is_a_problem(tmp_path):
    def edit(root):
        target = root["bindings"]["text/final_norm"]["object"]
        find_object(root, target)["format"] = "t2_g128_fp16"

    (message,) = messages(open_v3(tmp_path, edit))
    assert "unknown numeric format (got t2_g128_fp16" in message


def test_unreferenced_objects_belong_to_no_group(tmp_path):
    def edit(root):
        del root["bindings"]["text/final_norm"]

    artifact = open_v3(tmp_path, edit)
    owners = own_objects(artifact)
    assert list(owners.values()).count(UNREFERENCED) == 1
    assert "objects that nothing refers to: 1" in Examination(artifact).notices


def test_a4_on_nvfp4_needs_a_divisor_for_every_use(tmp_path):
    def edit(root):
        for use in root["uses"]:
            if use["parameter"] == "text/layers/3/mlp/down":
                del use["auxiliaries"]

    artifact = open_v3(tmp_path, edit, profile="nvfp4-official")
    assert messages(artifact) == [
        "AllowA4 on nvfp4: 1 uses lack activation_input_divisor: "
        "text/layers/3/mlp/down @ text/layers/3/mlp/product"
    ]


def test_divisor_must_be_a_scalar(tmp_path):
    def edit(root):
        for use in root["uses"]:
            if use["parameter"] == "text/layers/3/mlp/down":
                use["auxiliaries"]["activation_input_divisor"] = {
                    "object": root["bindings"]["text/final_norm"]["object"]
                }

    (message,) = messages(open_v3(tmp_path, edit, profile="nvfp4-official"))
    assert "that is no fp32 scalar: text/layers/3/mlp/down" in message


def test_a4_on_another_format_needs_no_divisor(tmp_path):
    def edit(root):
        root["uses"][0]["activation_policy"] = "AllowA4"

    assert messages(open_v3(tmp_path, edit)) == []


def test_two_drafters_are_a_problem(tmp_path):
    def edit(root):
        config = dict(root["components"]["dflash2"]["config"])
        root["components"]["dflash"] = {"config": config, "target": "text"}

    text = messages(open_v3(tmp_path, edit))
    assert text[-1] == "an artifact holds one drafter (got ['dflash', 'dflash2'])"
    assert state_of(open_v3(tmp_path, edit), "dflash2").state == "complete"


def test_missing_part_is_a_problem(tmp_path):
    path = save_multi_file(tmp_path)
    (tmp_path / "multi.ninfer.part-0002").unlink()
    assert "part is missing" in messages(open_artifact(path))[-1]


def test_artifact_without_a_text_group_is_refused(tmp_path):
    def edit(root):
        root["objects"] = [i for i in root["objects"] if i["name"].startswith("vision/")]

    lines = messages(open_legacy(tmp_path, edit))
    assert any(line.endswith("artifact has no text group") for line in lines)


def test_mixture_of_experts_is_examined_completely(tmp_path):
    """35B-A3B: 32,713 bindings, none of them missing."""
    artifact = open_v3(
        tmp_path, model="qwen3.6-35b-a3b", components=("text", "vision", "mtp", "dflash"),
        layers=None,
    )  # fmt: skip
    assert len(artifact.bindings) == 32713
    assert ready_problems(artifact) == []
