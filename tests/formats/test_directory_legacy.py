"""Laws of version 1 and 2 directories: `specs/container.md`, D-2 to D-7 and L-1, L-2."""

from __future__ import annotations

import pytest

from builders.artifact_bytes import (
    legacy_bytes,
    save,
    save_small,
    small_legacy_payload,
    small_legacy_root,
)
from ninfer_formats.errors import ArtifactError
from ninfer_formats.reader import open_artifact


def open_root(folder, root, version=2, payload=None):
    data = legacy_bytes(version, root, small_legacy_payload() if payload is None else payload)
    return open_artifact(save(folder / "x.ninfer", data))


@pytest.mark.parametrize("version", [1, 2])
def test_worked_example_opens_under_canonical_names(tmp_path, version):
    """L-1."""
    artifact = open_artifact(save_small(tmp_path, version))
    assert artifact.version == version
    assert str(artifact.identity) == (
        "qwen3.6-27b" if version == 1 else "qwen3.8-27b/groupwise-int"
    )
    tensor = artifact.objects["text/w"]
    assert (tensor.format, tensor.layout) == ("q5_g64_fp16", "row_split_k128_v1")
    assert artifact.objects["frontend/tokenizer.json"].encoding == "raw_bytes_v1"
    assert artifact.payload_of("text/final_norm").tobytes() == b"\x80\x3f" * 130
    assert artifact.find_problems() == []


def test_bytes_behind_the_last_object_are_ignored(tmp_path):
    """C-6."""
    assert open_root(tmp_path, small_legacy_root(), payload=small_legacy_payload() + b"more")


@pytest.mark.parametrize("missing", [1, 100, 1808])
def test_truncated_payload_says_both_sizes(tmp_path, missing):
    """C-6."""
    payload = small_legacy_payload()[:-missing]
    with pytest.raises(
        ArtifactError, match=f"file is {4096 + len(payload)} bytes, directory says 5904"
    ):
        open_root(tmp_path, small_legacy_root(), payload=payload)


FATAL = {
    "unknown root member": lambda r: r.update(extra=1),
    "unknown object member": lambda r: r["objects"][1].update(extra=1),
    "version 3 member name": lambda r: r["objects"][1].update(id="a"),
    "object member missing": lambda r: r["objects"][1].pop("shape"),
    "null member": lambda r: r["objects"][1].update(shape=None),
    "identity with more members": lambda r: r["identity"].update(extra=1),
    "empty weights_id": lambda r: r["identity"].update(weights_id=""),
    "duplicate name": lambda r: r["objects"][2].update(name="text/final_norm"),
    "overlap": lambda r: r["objects"][2].update(offset=1024),
    "unaligned tensor": lambda r: r["objects"][2].update(offset=1281),
    "wrong size": lambda r: r["objects"][1].update(bytes=262),
    "wrong rank": lambda r: r["objects"][2].update(shape=[260]),
    "layout of another format": lambda r: r["objects"][2].update(layout="contiguous-le-v1"),
    "unknown encoding": lambda r: r["objects"][0].update(encoding="zstd"),
    "version 3 encoding": lambda r: r["objects"][0].update(encoding="raw_bytes_v1"),
    "end past 2**63": lambda r: r["objects"][2].update(offset=2**63 - 256),
    "no objects": lambda r: r.update(objects=[]),
    "objects not an array": lambda r: r.update(objects={}),
    "object not a record": lambda r: r["objects"].append(5),
}


@pytest.mark.parametrize("fault", FATAL)
def test_fault_is_fatal_at_open(tmp_path, fault):
    root = small_legacy_root()
    FATAL[fault](root)
    with pytest.raises(ArtifactError) as caught:
        open_root(tmp_path, root)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("member", "name"),
    [("format", "GGUF_Q4"), ("format", "q5_g64_fp16"), ("layout", "row_split_k128_v1")],
)
def test_unknown_format_or_layout_stays_inspectable(tmp_path, member, name):
    """D-7: a version 3 name is unknown in a version 2 file."""
    root = small_legacy_root()
    root["objects"][2][member] = name
    artifact = open_root(tmp_path, root)
    assert len(artifact.find_problems()) == 1
    with pytest.raises(ArtifactError, match="unknown"):
        artifact.payload_of("text/w")


def test_unregistered_identity_opens_with_its_objects_only(tmp_path):
    """L-2."""
    root = small_legacy_root()
    root["identity"]["model_id"] = "someone-elses-model"
    artifact = open_root(tmp_path, root)
    assert len(artifact.objects) == 3
    assert not artifact.components
    assert not artifact.bindings
    assert artifact.uses == ()
