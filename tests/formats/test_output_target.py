"""Laws of refusing an output before its first byte (specs/publication.md, PUB-4)."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from builders.file_sets import (
    ENTRY,
    NEW,
    ONE,
    PART_1,
    PART_2,
    contents,
    write_set,
)
from ninfer_formats import output_target
from ninfer_formats.errors import UsageError


@pytest.mark.parametrize("taken", [ENTRY, PART_1, PART_2])
def test_existing_path_is_refused_before_anything_is_created(tmp_path, taken):
    """PUB-4"""
    (tmp_path / taken).write_bytes(b"precious")
    with pytest.raises(UsageError, match=r"exists; choose another output path or pass --force"):
        write_set(tmp_path / ENTRY, NEW)
    assert contents(tmp_path) == {taken: b"precious"}


def test_dangling_symbolic_link_counts_as_existing(tmp_path):
    """PUB-4"""
    (tmp_path / ENTRY).symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="exists"):
        write_set(tmp_path / ENTRY, NEW)
    assert sorted(p.name for p in tmp_path.iterdir()) == [ENTRY]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", [ENTRY, PART_2])
def test_folder_at_a_final_name_is_refused(tmp_path, name, force):
    """PUB-4"""
    (tmp_path / name).mkdir()
    (tmp_path / name / "inside").write_bytes(b"precious")
    with pytest.raises(UsageError, match="is a folder"):
        write_set(tmp_path / ENTRY, NEW, force=force)
    assert (tmp_path / name / "inside").read_bytes() == b"precious"
    assert len(contents(tmp_path)) == 1


@pytest.mark.parametrize(
    ("path", "files", "message"),
    [
        ("missing/m.ninfer", {ENTRY: b""}, "does not exist"),
        ("file/m.ninfer", {ENTRY: b""}, "not a folder"),
        ("file/below/m.ninfer", {ENTRY: b""}, "cannot be used"),
        (".", {ENTRY: b""}, "is a folder|not a file name|not among"),
        ("a/..", {"..": b""}, "not a file name"),
        ("m.ninfer", {ENTRY: b"", "../x": b""}, "not a file name"),
        ("m.ninfer", {ENTRY: b"", "a/b": b""}, "not a file name"),
        ("m.ninfer", {ENTRY: b"", "a\0b": b""}, "not a file name"),
        ("m\0.ninfer", {"m\0.ninfer": b""}, "not a file name"),
        ("m\0/m.ninfer", {ENTRY: b""}, "cannot be used"),
        ("m.ninfer", {"other.ninfer": b""}, "not among"),
        ("x" * 250, {"x" * 250: b""}, "too long"),
        ("m.ninfer", {ENTRY: b"", "x" * 256: b""}, "too long"),
    ],
)
def test_path_that_cannot_be_written_is_refused(tmp_path, path, files, message):
    """PUB-4"""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match=message):
        write_set(tmp_path / path, files)
    assert contents(tmp_path) == {"file": b""}


def test_folder_without_write_permission_is_refused(tmp_path, monkeypatch):
    """PUB-4"""
    monkeypatch.setattr(output_target.os, "access", lambda path, mode: False)
    with pytest.raises(UsageError, match="not writable; choose another output path"):
        write_set(tmp_path / ENTRY, NEW)
    assert contents(tmp_path) == {}


def test_folder_the_kernel_does_not_let_us_write_is_refused_in_one_error(tmp_path, monkeypatch):
    """PUB-4"""

    def refuse(*args):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UsageError, match=r"cannot write here \(got Read-only file system\)"):
        write_set(tmp_path / ENTRY, NEW)


def test_missing_free_space_is_refused_before_the_first_byte(tmp_path, monkeypatch):
    """PUB-4: 3 blocks of 4 KiB are 12288 bytes; the set needs its 5 bytes and 1 MiB."""
    monkeypatch.setattr(
        os, "statvfs", lambda path: SimpleNamespace(f_bavail=3, f_frsize=4096, f_bfree=10**9)
    )
    with pytest.raises(UsageError, match="not enough free disk space") as raised:
        write_set(tmp_path / ENTRY, ONE)
    assert raised.value.got == "12288 bytes (0.00 GiB) free"
    assert raised.value.want == "1048581 bytes (0.00 GiB)"
    assert contents(tmp_path) == {}
