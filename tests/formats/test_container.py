"""Laws of the framing: `specs/container.md`, rules C-1 to C-9."""

from __future__ import annotations

import os
import struct

import pytest

from builders.artifact_bytes import (
    compact,
    entry_bytes,
    legacy_bytes,
    save,
    small_legacy_payload,
    small_legacy_root,
    small_payload,
    small_root,
)
from ninfer_formats.container import check_magic, part_index, read_prefix
from ninfer_formats.errors import ArtifactError, ForeignFileError, UsageError
from ninfer_formats.reader import open_artifact


def test_legacy_prefix_is_magic_and_length(tmp_path):
    """C-1, C-2: sixteen bytes, JSON at 16, payload on the next multiple of 4096."""
    head = bytes.fromhex("4e494e4645520002") + bytes.fromhex("0a00000000000000")
    prefix = read_prefix(head.ljust(64, b" "), 8192, tmp_path)
    assert (prefix.version, prefix.json_bytes, prefix.json_offset) == (2, 10, 16)
    assert prefix.payload_start == 4096
    assert prefix.artifact_id is None


def test_entry_prefix_has_an_artifact_id(tmp_path):
    """C-1, C-2: thirty-two bytes, JSON at 32."""
    head = bytes.fromhex("4e494e4645520003e10f000000000000") + bytes(range(16))
    prefix = read_prefix(head.ljust(64, b" "), 10**6, tmp_path)
    assert (prefix.version, prefix.json_bytes, prefix.json_offset) == (3, 4065, 32)
    assert prefix.payload_start == 8192
    assert prefix.artifact_id == bytes(range(16))


@pytest.mark.parametrize("version", [4, 9, 255])
def test_newer_version_asks_for_a_newer_release(tmp_path, version):
    """C-1."""
    path = save(tmp_path / "x.ninfer", b"NINFER\0" + bytes([version]) + bytes(100))
    with pytest.raises(ArtifactError, match="needs a newer release") as caught:
        open_artifact(path)
    assert not isinstance(caught.value, ForeignFileError)


FOREIGN = {
    "GGUF": b"GGUF\3\0\0\0" + bytes(56),
    "git-lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00",
    "safetensors": struct.pack("<Q", 1000) + b'{"__metadata__":{}',
    "HTML": b"\n<!DOCTYPE html><html><head>",
    "zip": b"PK\x03\x04" + bytes(60),
    "empty": b"",
    "truncated": b"NINFER\0",
    "unknown": b"\x93NUMPY\1\0" + bytes(20),
    "file of zeros": bytes(64),
    "JSON": b'{"schema": "ninfer.artifact-manifest"}',
}


@pytest.mark.parametrize("looks", FOREIGN)
def test_foreign_file_is_named_for_what_it_is(tmp_path, looks):
    """C-1."""
    path = save(tmp_path / "x.ninfer", FOREIGN[looks])
    with pytest.raises(ForeignFileError, match=looks):
        open_artifact(path)


def test_huge_declared_lengths_allocate_nothing(tmp_path):
    """C-3: 2**64 - 1 in the length field of either kind of file."""
    with pytest.raises(ArtifactError, match="out of bounds"):
        open_artifact(save(tmp_path / "a", b"NINFER\0\2" + b"\xff" * 8 + bytes(100)))
    with pytest.raises(ForeignFileError):
        open_artifact(save(tmp_path / "b", b"\xff" * 8 + b"{" * 100))


def test_directory_over_the_cap_is_refused_with_the_option_to_raise_it(tmp_path):
    """C-3."""
    path = save(tmp_path / "x", b"NINFER\0\3" + struct.pack("<Q", 2**28 + 1) + bytes(100))
    with pytest.raises(ArtifactError, match="--max-directory-mib"):
        open_artifact(path)
    with pytest.raises(ArtifactError, match="truncated"):
        open_artifact(path, max_directory_bytes=2**29)


@pytest.mark.parametrize("length", [8, 15, 16, 20, 31, 40])
def test_file_that_ends_inside_prefix_or_directory_is_truncated(tmp_path, length):
    """C-3."""
    for name, data in {
        "v2": legacy_bytes(2, {"identity": {}, "objects": []}, b""),
        "v3": entry_bytes(small_root(), b""),
    }.items():
        with pytest.raises(ArtifactError, match="truncated"):
            open_artifact(save(tmp_path / name, data[:length]))


def test_json_bytes_must_be_positive(tmp_path):
    """C-3."""
    path = save(tmp_path / "x", b"NINFER\0\2" + bytes(8) + bytes(5000))
    with pytest.raises(ArtifactError, match="json_bytes must be positive"):
        open_artifact(path)


def test_part_names_its_index_and_the_entry(tmp_path):
    """C-8."""
    head = b"NINPRT\0\3" + struct.pack("<Q", 2) + bytes(16)
    assert part_index(head) == 2
    path = save(tmp_path / "m.ninfer.part-0002", head.ljust(4096, b"\0"))
    with pytest.raises(ForeignFileError, match=r"part 2.*open the entry instead: m\.ninfer$"):
        open_artifact(path)


def test_paths_that_are_not_files_are_bad_usage(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing.ninfer", "pipe", "."):
        with pytest.raises(UsageError):
            open_artifact(tmp_path / name)
    with pytest.raises(UsageError):
        open_artifact("/dev/zero")
    with pytest.raises(UsageError):
        open_artifact("nul\0byte")


def test_check_magic_accepts_the_three_versions(tmp_path):
    assert [check_magic(b"NINFER\0" + bytes([v]), 100, tmp_path) for v in (1, 2, 3)] == [1, 2, 3]


def test_bytes_between_json_and_payload_are_ignored(tmp_path):
    """C-4."""
    data = bytearray(legacy_bytes(2, small_legacy_root(), small_legacy_payload()))
    end = 16 + int.from_bytes(data[8:16], "little")
    data[end:4096] = b"\xee" * (4096 - end)
    artifact = open_artifact(save(tmp_path / "x", bytes(data)))
    assert artifact.payload_of("text/final_norm").tobytes() == b"\x80\x3f" * 130


def test_version_3_json_needs_no_padding(tmp_path):
    """C-5: a reader accepts a gap as well."""
    text = compact(small_root())
    head = b"NINFER\0\3" + struct.pack("<Q", len(text)) + bytes(16) + text
    data = head.ljust(4096, b"\0") + small_payload()
    assert open_artifact(save(tmp_path / "x", data)).version == 3
