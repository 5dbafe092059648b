"""Laws of `--verify`: damage anywhere in the payload is found, named, and counted."""

from __future__ import annotations

import json
import struct
from threading import Event

import pytest

from builders.artifact_bytes import (
    entry_bytes,
    legacy_bytes,
    save,
    save_multi_file,
    save_small,
    small_legacy_payload,
    small_legacy_root,
    small_payload,
    small_root,
)
from ninfer_formats.directory import Tensor
from ninfer_formats.inventories.profiles import PROFILE_NAMES
from ninfer_formats.reader import Artifact, open_artifact
from ninfer_tools.inspection import verification
from ninfer_tools.inspection.fault import PayloadFault
from ninfer_tools.inspection.resource_checks import find_faults
from ninfer_tools.inspection.tensor_checks import find_plain_norms
from ninfer_tools.synthetic.artifact import write_synthetic
from ninfer_tools.synthetic.specification import parse_spec

from .conftest import errors_of

RECORD_KEYS = ["ok", "objects", "checked", "bytes", "seconds", "errors", "notices"]
FAULT_KEYS = [
    "severity", "where", "kind", "message", "offset", "row", "column", "group", "count",
]  # fmt: skip


def poke(path, name: str, offset: int, data: bytes) -> None:
    """Overwrite bytes of the first object of a parameter."""
    artifact = open_artifact(path)
    item = artifact.objects[artifact.bindings[name].parts[0].object]
    at = artifact.prefix.payload_start + item.offset + offset
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def tensor_of(path, name: str) -> Tensor:
    artifact = open_artifact(path)
    item = artifact.objects[artifact.bindings[name].parts[0].object]
    assert isinstance(item, Tensor)
    return item


def test_legal_artifact_passes(legal_artifact, inspect):
    answer = inspect(legal_artifact, "--verify")
    assert answer.code == 0
    assert answer.out.startswith(f"all {len(open_artifact(legal_artifact).objects)} objects legal")


@pytest.mark.parametrize("profile", PROFILE_NAMES)
def test_legal_artifact_of_every_profile_has_no_notice_either(tmp_path, profile):
    spec = f"qwen3.5-0.8b:{profile}:layers=4:vocab=600:proposal=300:components=text+mtp+vision"
    path = tmp_path / "m.ninfer"
    write_synthetic(parse_spec(spec), path)
    assert verification.verify_payload(open_artifact(path)).faults == ()


def test_json_schema_is_stable(copy_of_legal, inspect):
    poke(copy_of_legal, "text/final_norm", 0, b"\xc0\x7f")
    record = inspect(copy_of_legal, "--verify", "--json").record["verify"]
    assert list(record) == RECORD_KEYS
    assert record["ok"] is False
    assert list(record["errors"][0]) == FAULT_KEYS


def test_nan_in_a_norm_is_an_error_with_its_place(copy_of_legal, inspect):
    poke(copy_of_legal, "text/final_norm", 6, b"\xc0\x7f")
    (error,) = errors_of(inspect, copy_of_legal)
    assert error["kind"] == "non_finite"
    assert (error["row"], error["count"]) == (3, 1)
    item = tensor_of(copy_of_legal, "text/final_norm")
    assert error["where"] == f"object {item.id}" and error["offset"] == item.offset


def test_illegal_scale_is_an_error_with_its_place(copy_of_legal, inspect):
    item = tensor_of(copy_of_legal, "text/layers/0/mlp/gate")
    poke(copy_of_legal, "text/layers/0/mlp/gate", item.bytes - 2, b"\x00\x7c")
    answer = inspect(copy_of_legal, "--verify")
    assert answer.code == 1
    assert (
        f"error: object {item.id}: scale is NaN or infinite (first at row {item.shape[0] - 1:,}, "
        in answer.out
    )
    assert "errors: 1, notices: 0, objects: " in answer.out


def test_every_damaged_object_is_listed(copy_of_legal, inspect):
    names = ["text/final_norm", "text/layers/0/input_norm", "text/layers/0/gdn/a_log"]
    for name in names:
        poke(copy_of_legal, name, 0, b"\xff\xff\xff\xff")
    found = {error["where"] for error in errors_of(inspect, copy_of_legal)}
    assert found == {f"object {tensor_of(copy_of_legal, name).id}" for name in names}


def test_all_zero_weights_are_a_notice(copy_of_legal, inspect):
    item = tensor_of(copy_of_legal, "text/layers/0/input_norm")
    poke(copy_of_legal, "text/layers/0/input_norm", 0, bytes(item.bytes))
    answer = inspect(copy_of_legal, "--verify", "--json")
    assert answer.code == 0
    assert [n["kind"] for n in answer.record["verify"]["notices"]] == ["all_zero"]
    count = len(open_artifact(copy_of_legal).objects)
    notice, summary = inspect(copy_of_legal, "--verify").out.splitlines()
    assert notice == f"notice: object {item.id}: every value is zero"
    assert summary.startswith(f"no illegal word in {count} objects, 1 notice (")


def test_all_zero_weights_of_a_plain_norm_are_an_error(copy_of_legal, inspect):
    item = tensor_of(copy_of_legal, "text/layers/0/gdn/norm")
    poke(copy_of_legal, "text/layers/0/gdn/norm", 0, bytes(item.bytes))
    (error,) = errors_of(inspect, copy_of_legal)
    assert error["message"] == "every weight of this norm is zero"


class NamesOnly:
    """As much of an artifact as `find_plain_norms` looks at."""

    def __init__(self, names):
        from ninfer_formats.directory import Binding, Part

        self.bindings = {name: Binding((Part(name, 0, 1),), True) for name in names}


def test_plain_norms_are_those_that_multiply_as_they_are():
    plain = {
        "text/layers/12/gdn/norm", "vision/layers/0/norm1_weight", "vision/merger/norm_weight",
        "dflash2/context_norm", "dflash/final_norm", "dflash2/layers/1/attention/query_norm",
        "dflash/layers/0/input_norm",
    }  # fmt: skip
    centred = {
        "text/final_norm", "text/layers/0/input_norm", "mtp/hidden_norm",
        "text/layers/3/attention/key_norm", "vision/layers/0/norm1_bias", "mtp/final_norm",
    }  # fmt: skip
    names = NamesOnly([*plain, *centred])
    assert find_plain_norms(names) == plain  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_activation_divisor_must_be_finite_and_positive(tmp_path, inspect, value):
    root, payload = small_root(), bytearray(small_payload())
    use = root["uses"][0]
    use["auxiliaries"] = {"activation_input_divisor": {"object": "auxiliary/000000"}}
    payload[-4:] = struct.pack("<f", value)
    errors = errors_of(inspect, save(tmp_path / "m.ninfer", entry_bytes(root, bytes(payload))))
    assert [e["where"] for e in errors if e["kind"] == "illegal_divisor"] == [
        "object auxiliary/000000"
    ]


@pytest.mark.parametrize(
    ("row", "value", "kind"),
    [(5, -1, "token_range"), (5, 2**30, "token_range"), (0, None, "token_repeated")],
)
def test_token_ids_are_unique_and_inside_the_vocabulary(copy_of_legal, inspect, row, value, kind):
    name = "proposal/token_ids"
    ids = open_artifact(copy_of_legal).parameter(name).decode()
    word = int(ids[7]) if value is None else value
    poke(copy_of_legal, name, 4 * row, struct.pack("<i", word))
    (error,) = errors_of(inspect, copy_of_legal)
    assert (error["kind"], error["where"], error["count"]) == (kind, f"parameter {name}", 1)
    assert error["row"] == (7 if value is None else row)


@pytest.mark.parametrize(
    ("role", "data", "message"),
    [
        ("a.json", b'{"a":1}', None),
        ("a.jinja", "ä {{ x }}".encode(), None),
        ("a.jinja", b"a\0b", "NUL bytes (first at 1; 1 in all)"),
        ("a.jinja", b"ab\xff", "not UTF-8 at byte 2"),
        ("a.jinja", b"  \n", "blank"),
        ("a.json", b'{"a":', "not JSON"),
        ("a.json", b"[1]", "not a JSON object but list"),
        ("a.json", b'{"a":' * 100_000, "not JSON"),
    ],
)
def test_stored_files_are_text_and_json_where_they_say_so(role, data, message):
    found = list(find_faults(role, data, None))
    assert (found == []) if message is None else (len(found) == 1 and message in found[0])


def test_preprocessor_must_fit_the_vision_tower():
    from ninfer_formats.inventories.geometry import VisionGeometry

    vision = VisionGeometry(12, 768, 3072, 12)
    sizes = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    data = json.dumps(sizes).encode()
    assert list(find_faults("preprocessor_config.json", data, vision)) == [
        "patch_size is 14, the vision config says 16"
    ]
    assert list(find_faults("tokenizer.json", data, vision)) == []


def test_damaged_resource_is_an_error(tmp_path, inspect):
    payload = b"\xff" + small_payload()[1:]
    path = save(tmp_path / "m.ninfer", entry_bytes(small_root(), payload))
    errors = errors_of(inspect, path)
    assert [e["where"] for e in errors] == ["object resource/text/chat_template.jinja"]


def test_missing_objects_are_errors_too(tmp_path, inspect):
    errors = errors_of(inspect, save_small(tmp_path, 2))
    assert any("group text is partial" in e["message"] for e in errors)


def test_unregistered_identity_with_a_legal_payload_passes(tmp_path, inspect):
    root = small_legacy_root()
    root["identity"]["model_id"] = "other"
    path = save(tmp_path / "m.ninfer", legacy_bytes(2, root, small_legacy_payload()))
    answer = inspect(path, "--verify")
    assert answer.code == 0
    assert "notice: group text: identity other/groupwise-int is not registered" in answer.out


def test_missing_part_leaves_its_objects_unchecked(tmp_path, inspect):
    path = save_multi_file(tmp_path)
    (tmp_path / "multi.ninfer.part-0002").unlink()
    answer = inspect(path, "--verify", "--json")
    record = answer.record["verify"]
    assert answer.code == 1
    assert (record["objects"], record["checked"]) == (3, 1)
    assert any("part is missing" in e["message"] for e in record["errors"])
    assert "2 could not be checked" in inspect(path, "--verify").out


def test_unknown_format_is_not_taken_for_legal(tmp_path, inspect):
    root = small_root()
    root["objects"][1]["format"] = "t2_g128_fp16"
    path = save(tmp_path / "m.ninfer", entry_bytes(root, small_payload()))
    answer = inspect(path, "--verify")
    assert answer.code == 1
    assert "unknown numeric format" in answer.out and "1 could not be checked" in answer.out


def test_progress_counts_every_byte(legal_artifact):
    artifact = open_artifact(legal_artifact)
    seen = []
    found = verification.verify_payload(artifact, seen.append)
    assert sum(seen) == found.bytes == sum(item.bytes for item in artifact.objects.values())


def test_interrupt_drops_what_is_still_queued(legal_artifact, monkeypatch):
    artifact, begun, release = open_artifact(legal_artifact), [], Event()

    def check(artifact: Artifact, item: Tensor, norms: frozenset[str]) -> list[PayloadFault]:
        begun.append(item.id)
        if len(begun) > 1:
            release.wait(30)
        return []

    def interrupt(count: int) -> None:
        if begun:
            raise KeyboardInterrupt

    monkeypatch.setattr(verification, "check_tensor", check)
    monkeypatch.setattr(verification.os, "cpu_count", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        verification.verify_payload(artifact, interrupt)
    release.set()
    assert len(begun) <= 3 < len(artifact.tensors())


def test_fault_is_one_line_without_control_characters():
    fault = PayloadFault("error", "object a\x1b[2J\nb", "k", "m", row=1234, count=5)
    assert str(fault) == "error: object a\\x1b[2J\\nb: m (first at row 1,234; 5 in all)"
