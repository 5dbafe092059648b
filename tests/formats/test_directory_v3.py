"""Laws of the version 3 directory: `specs/container.md`, rules D-1 to D-12."""

from __future__ import annotations

import copy
import json

import pytest

from builders.artifact_bytes import (
    compact,
    entry_bytes,
    save,
    save_small,
    small_payload,
    small_root,
)
from ninfer_formats.directory import Proposal
from ninfer_formats.errors import ArtifactError
from ninfer_formats.reader import open_artifact


def edit(change):
    root = small_root()
    change(root)
    return root


def open_root(folder, root):
    return open_artifact(save(folder / "x.ninfer", entry_bytes(root, small_payload())))


def test_worked_example_opens(tmp_path):
    artifact = open_artifact(save_small(tmp_path))
    assert artifact.version == 3
    assert list(artifact.objects) == [
        "resource/text/chat_template.jinja",
        "weight/000000",
        "auxiliary/000000",
    ]
    assert artifact.objects["weight/000000"].bytes == 26112
    assert artifact.components["text"].proposal == Proposal("indexed", 64)
    assert artifact.components["mtp"].target == "text"
    assert artifact.metadata == {"name": "demo"}
    assert artifact.provenance["recipe"] == "demo"
    assert artifact.resource("chat_template.jinja").startswith(b"{{ x }}")
    assert artifact.find_problems() == []
    use = artifact.uses[0]
    assert (use.input, use.activation_policy) == ("text/layers/3/mixer_input", "A16Only")


def test_ranges_of_a_fused_parent_are_row_views(tmp_path):
    """D-9: query is rows 0..255 and key rows 256..383 of one matrix."""
    artifact = open_artifact(save_small(tmp_path))
    key = artifact.parameter("text/layers/3/attention/key")
    assert key.shape == (128, 128)
    (view,) = key.views()
    assert all(not plane.flags.owndata for plane in view.planes.values())
    values = key.decode()
    assert values.shape == (128, 128)
    assert values[0, :4].tolist() == [0.0, 1.0, 1.0, 1.0]


FATAL = {
    "unknown root member": lambda r: r.update(extra=1),
    "root member missing": lambda r: r.pop("uses"),
    "unknown component member": lambda r: r["components"]["mtp"].update(extra=1),
    "component without config": lambda r: r["components"]["mtp"].pop("config"),
    "no text component": lambda r: r["components"].pop("text"),
    "target that is no component": lambda r: r["components"]["mtp"].update(target="vision"),
    "target that is null": lambda r: r["components"]["mtp"].update(target=None),
    "resource role on a tensor": lambda r: r["components"]["text"]["resources"].update(
        x="weight/000000"
    ),
    "proposal outside text": lambda r: r["components"]["mtp"].update(proposal={"domain": "full"}),
    "full proposal with rows": lambda r: r["components"]["text"].update(
        proposal={"domain": "full", "rows": 3}
    ),
    "indexed proposal without rows": lambda r: r["components"]["text"].update(
        proposal={"domain": "indexed"}
    ),
    "indexed proposal with rows 0": lambda r: r["components"]["text"].update(
        proposal={"domain": "indexed", "rows": 0}
    ),
    "no objects": lambda r: r.update(objects=[]),
    "unknown object member": lambda r: r["objects"][1].update(extra=1),
    "object member missing": lambda r: r["objects"][1].pop("format"),
    "unknown kind": lambda r: r["objects"][1].update(kind="blob"),
    "duplicate object": lambda r: r["objects"][2].update(id="weight/000000"),
    "empty object id": lambda r: r["objects"][1].update(id=""),
    "object id with NUL": lambda r: r["objects"][1].update(id="a\0b"),
    "overlap": lambda r: r["objects"][2].update(offset=26368),
    "order": lambda r: r["objects"].reverse(),
    "beyond the payload": lambda r: r["objects"][2].update(offset=26880),
    "offset of 2**63": lambda r: r["objects"][2].update(offset=2**63),
    "offset of 2**64": lambda r: r["objects"][2].update(offset=2**64),
    "negative offset": lambda r: r["objects"][0].update(offset=-1),
    "bytes of zero": lambda r: r["objects"][0].update(bytes=0),
    "float offset": lambda r: r["objects"][2].update(offset=26624.0),
    "boolean bytes": lambda r: r["objects"][0].update(bytes=True),
    "dimension 0": lambda r: r["objects"][1].update(shape=[0, 128]),
    "boolean dimension": lambda r: r["objects"][1].update(shape=[True, 128]),
    "float dimension": lambda r: r["objects"][1].update(shape=[384.0, 128]),
    "rank 17": lambda r: r["objects"][1].update(shape=[1] * 17),
    "shape of 2**64 elements": lambda r: r["objects"][1].update(shape=[2**32, 2**32]),
    "divisors on a q4 matrix": lambda r: r["objects"][1].update(divisors=2),
    "binding with object and parts": lambda r: r["bindings"].update(
        a={"object": "weight/000000", "parts": []}
    ),
    "binding of nothing": lambda r: r["bindings"].update(a={}),
    "binding with empty parts": lambda r: r["bindings"].update(a={"parts": []}),
    "binding to a resource": lambda r: r["bindings"].update(
        a={"object": "resource/text/chat_template.jinja"}
    ),
    "binding to nothing": lambda r: r["bindings"].update(a={"object": "weight/9"}),
    "empty range": lambda r: r["bindings"].update(
        a={"parts": [{"object": "weight/000000", "range": [5, 5]}]}
    ),
    "reversed range": lambda r: r["bindings"].update(
        a={"parts": [{"object": "weight/000000", "range": [6, 5]}]}
    ),
    "range past the parent": lambda r: r["bindings"].update(
        a={"parts": [{"object": "weight/000000", "range": [0, 49153]}]}
    ),
    "unknown part member": lambda r: r["bindings"].update(
        a={"parts": [{"object": "weight/000000", "range": [0, 1], "x": 1}]}
    ),
    "empty parameter name": lambda r: r["bindings"].update({"": {"object": "weight/000000"}}),
    "use of an unbound parameter": lambda r: r["uses"].append({"parameter": "x", "input": "y"}),
    "use given twice": lambda r: r["uses"].append(dict(r["uses"][0])),
    "use without input": lambda r: r["uses"][0].pop("input"),
    "unknown use member": lambda r: r["uses"][0].update(extra=1),
    "unknown policy": lambda r: r["uses"][0].update(activation_policy="AllowA2"),
    "null policy": lambda r: r["uses"][0].update(activation_policy=None),
    "auxiliary to nothing": lambda r: r["uses"][0].update(
        auxiliaries={"activation_input_divisor": {"object": "no"}}
    ),
    "empty metadata name": lambda r: r["metadata"].update(name=""),
    "metadata name not a string": lambda r: r["metadata"].update(name=5),
    "provenance not an object": lambda r: r.update(provenance=[]),
    "no files": lambda r: r.update(files=[]),
    "entry with a path": lambda r: r["files"][0].update(path="a"),
    "payload_bytes of zero": lambda r: r["files"][0].update(payload_bytes=0),
    "payload off by one": lambda r: r["files"][0].update(payload_bytes=26629),
    "part with a slash": lambda r: r["files"].append({"path": "a/b", "payload_bytes": 1}),
    "part with a backslash": lambda r: r["files"].append({"path": "a\\b", "payload_bytes": 1}),
    "part named ..": lambda r: r["files"].append({"path": "..", "payload_bytes": 1}),
    "part named .": lambda r: r["files"].append({"path": ".", "payload_bytes": 1}),
    "part with NUL": lambda r: r["files"].append({"path": "a\0", "payload_bytes": 1}),
    "part named as the entry": lambda r: r["files"].append(
        {"path": "x.ninfer", "payload_bytes": 1}
    ),
    "part named twice": lambda r: r["files"].extend([{"path": "a", "payload_bytes": 1}] * 2),
}


@pytest.mark.parametrize("fault", FATAL)
def test_fault_is_fatal_at_open(tmp_path, fault):
    """D-2 to D-12: one fault each, one line each."""
    root = copy.deepcopy(edit(FATAL[fault]))
    with pytest.raises(ArtifactError) as caught:
        open_root(tmp_path, root)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "x.ninfer"))


HOSTILE_JSON = {
    "duplicate key": b'{"components":{},"components":{}}',
    "duplicate nested key": b'{"metadata":{"a":1,"a":2}}',
    "NaN": b'{"metadata":{"a":NaN}}',
    "Infinity": b'{"metadata":{"a":-Infinity}}',
    "number past float": b'{"metadata":{"a":1e999}}',
    "integer of many digits": b'{"a":' + b"9" * 5000 + b"}",
    "byte order mark": b"\xef\xbb\xbf{}",
    "NUL behind the JSON": b"{}\0",
    "not UTF-8": b'{"a":"\xff"}',
    "lone surrogate": b'{"metadata":{"a":"\\ud800"}}',
    "a list": b"[]",
    "a number": b"5",
    "cut": b'{"components":',
    "deep nesting": b"[" * 100_000 + b"]" * 100_000,
    "deep open object": b'{"a":' * 90_000 + b"1" + b"}" * 90_000,
}


@pytest.mark.parametrize("fault", HOSTILE_JSON)
def test_hostile_json_is_refused_in_one_line(tmp_path, fault):
    """D-1."""
    path = save(tmp_path / "x", entry_bytes(HOSTILE_JSON[fault], b"\0" * 100))
    with pytest.raises(ArtifactError) as caught:
        open_artifact(path)
    assert "\n" not in str(caught.value)


def test_open_objects_nest_64_levels_and_not_more(tmp_path):
    """D-1."""

    def nest(levels):
        value = 1
        for _ in range(levels):
            value = {"a": value}
        return value

    open_root(tmp_path, edit(lambda r: r.update(provenance=nest(63))))
    with pytest.raises(ArtifactError, match="nested too deeply"):
        open_root(tmp_path, edit(lambda r: r.update(provenance=nest(64))))


def test_member_order_and_white_space_have_no_meaning(tmp_path):
    """D-1."""
    root = dict(reversed(small_root().items()))
    text = b" \n" + json.dumps(root, indent=3).encode()
    assert open_root(tmp_path, text).version == 3


@pytest.mark.parametrize(
    ("member", "value", "message"),
    [
        ("format", "t2_g128_fp16", "unknown numeric format"),
        ("format", "Q4G64_F16S", "unknown numeric format"),
        ("layout", "row_interleaved_v1", "unknown layout"),
        ("layout", "row_scale_v1", "layout does not hold"),
        ("bytes", 26000, "its layout requires 26112"),
        ("shape", [384, 64, 2], "matrices only"),
        ("shape", [384], "matrices only"),
        ("offset", 511, "not aligned"),
    ],
)
def test_unusable_object_opens_and_fails_only_when_used(tmp_path, member, value, message):
    """D-7: inspectable, an error only when something asks for it."""
    root = edit(lambda r: r["objects"][1].update({member: value}))
    if member == "shape" and len(value) == 1:
        root["bindings"] = {"a": {"object": "weight/000000"}}
        root["uses"] = []
    artifact = open_root(tmp_path, root)
    assert len(artifact.find_problems()) == 1
    with pytest.raises(ArtifactError, match=message):
        artifact.payload_of("weight/000000")
    assert artifact.payload_of("auxiliary/000000").tobytes() == b"\0\0\0\x40"


def test_unknown_resource_encoding_fails_only_when_used(tmp_path):
    """D-7."""
    artifact = open_root(tmp_path, edit(lambda r: r["objects"][0].update(encoding="zstd_v1")))
    with pytest.raises(ArtifactError, match="unknown resource encoding"):
        artifact.resource("chat_template.jinja")


def test_unknown_component_is_inspectable(tmp_path):
    artifact = open_root(tmp_path, edit(lambda r: r["components"].update(audio={"config": {}})))
    assert "audio" in artifact.components


def test_divisors_of_an_nvfp4_matrix_are_read(tmp_path):
    """D-8: two stacks of 128 rows have two divisors at the end of the payload."""
    size = 256 * 64 // 2 + 256 * 64 // 16 + 8
    root = small_root()
    root["objects"][1] = {
        "id": "weight/000000",
        "shape": [256, 64],
        "format": "nvfp4",
        "layout": "block_scale_k16_m128x4_v1",
        "offset": 512,
        "bytes": size,
        "kind": "tensor",
        "divisors": 2,
    }
    root["bindings"], root["uses"] = {"a": {"object": "weight/000000"}}, []
    artifact = open_root(tmp_path, root)
    assert artifact.find_problems() == []
    assert artifact.objects["weight/000000"].divisors == 2
    with pytest.raises(ArtifactError, match="split the rows"):
        open_root(
            tmp_path, edit(lambda r: r.update(objects=[{**root["objects"][1], "divisors": 3}]))
        )


def test_bytes_behind_the_last_object_and_unreferenced_objects_are_allowed(tmp_path):
    """D-6."""
    root = edit(lambda r: r["objects"].pop())
    assert "auxiliary/000000" not in open_root(tmp_path, root).objects


def test_non_ascii_names_are_kept(tmp_path):
    root = edit(lambda r: r["metadata"].update(name="モデル"))
    assert open_root(tmp_path, compact(root)).metadata["name"] == "モデル"


DUPLICATED = {
    "root": ('"uses":[', '"uses":[],"uses":['),
    "object record": ('"offset":512', '"offset":512,"offset":512'),
    "object record with white space": ('"offset":512', '"offset":512,"offset"  :512'),
    "binding": ('{"parts":', '{"parts":[],"parts":'),
    "part": ('"range":[0,32768]', '"range":[0,1],"range":[0,32768]'),
    "use": ('"input":', '"input":"x","input":'),
    "component": ('"target":"text"', '"target":"text","target":"text"'),
    "config": ('"hidden_size":128', '"hidden_size":128,"hidden_size":128'),
    "provenance": ('"sources":{}', '"sources":{"a":{"b":1,"b":2}}'),
    "metadata beside a string that begins with a colon": (
        '"name":"demo"',
        '"name":"demo","x":[":a",":b"],"y":1,"y":2',
    ),
    "file": ('"path":null', '"path":null,"path":null'),
}


@pytest.mark.parametrize("place", DUPLICATED)
def test_duplicate_key_is_refused_wherever_it_stands(tmp_path, place):
    """D-1."""
    old, new = DUPLICATED[place]
    text = compact(small_root()).decode()
    assert old in text
    with pytest.raises(ArtifactError, match="duplicate key"):
        open_root(tmp_path, text.replace(old, new, 1).encode())


def test_strings_that_look_like_keys_are_no_duplicates(tmp_path):
    """D-1: colons and escaped quotes inside strings."""
    root = edit(lambda r: r["metadata"].update(a='":', b=':"x', c=[":", '":"', "\\"]))
    assert open_root(tmp_path, root).metadata["a"] == '":'
